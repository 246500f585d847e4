// The types that all layers share: ranks, element types, operations and round numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace pyc {

/// A process of a communicator, 0 <= rank < size.
using Rank = std::int32_t;

/// "No rank". Larger than every rank, so a minimum over ranks ignores it.
inline constexpr Rank kNoRank = std::numeric_limits<Rank>::max();

/// Separates messages of different operations between the same two ranks.
using Tag = std::int32_t;

/// The n-th execution of a persistent collective, counted from 0.
using RoundNumber = std::uint64_t;
inline constexpr RoundNumber kNoRound = ~RoundNumber{0};

using Seconds = double;

enum class DataType : std::uint8_t {
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kComplex64,
  kComplex128,
  kBool,
};
inline constexpr int kDataTypes = 15;

enum class ReduceOp : std::uint8_t { kSum, kProd, kMin, kMax, kAvg, kLand, kLor, kLxor, kBand, kBor, kBxor };
inline constexpr int kReduceOps = 11;

enum class NumberKind : std::uint8_t { kFloat, kInteger, kComplex, kBool };

struct DataTypeTraits {
  std::string_view name;  ///< In NumPy.
  std::size_t bytes;      ///< Of one element.
  NumberKind kind;
};

inline constexpr DataTypeTraits kDataTypeTraits[kDataTypes] = {
    {"float16", 2, NumberKind::kFloat},     {"bfloat16", 2, NumberKind::kFloat},
    {"float32", 4, NumberKind::kFloat},     {"float64", 8, NumberKind::kFloat},
    {"int8", 1, NumberKind::kInteger},      {"int16", 2, NumberKind::kInteger},
    {"int32", 4, NumberKind::kInteger},     {"int64", 8, NumberKind::kInteger},
    {"uint8", 1, NumberKind::kInteger},     {"uint16", 2, NumberKind::kInteger},
    {"uint32", 4, NumberKind::kInteger},    {"uint64", 8, NumberKind::kInteger},
    {"complex64", 8, NumberKind::kComplex}, {"complex128", 16, NumberKind::kComplex},
    {"bool", 1, NumberKind::kBool},
};

constexpr const DataTypeTraits& traits_of(DataType type) { return kDataTypeTraits[static_cast<std::size_t>(type)]; }
constexpr std::size_t size_of(DataType type) { return traits_of(type).bytes; }
constexpr std::string_view name_of(DataType type) { return traits_of(type).name; }

constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[kReduceOps] = {"SUM", "PROD", "MIN",  "MAX", "AVG", "LAND",
                                                  "LOR", "LXOR", "BAND", "BOR", "BXOR"};
  return names[static_cast<std::size_t>(op)];
}

/// Whether an operation is defined for a type, as in MPI (MPI 4.1, section 6.9.2). AVG is defined wherever SUM is.
constexpr bool is_defined(ReduceOp op, DataType type) {
  const NumberKind kind = traits_of(type).kind;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kProd:
    case ReduceOp::kAvg:
      return kind != NumberKind::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return kind == NumberKind::kFloat || kind == NumberKind::kInteger;
    case ReduceOp::kLand:
    case ReduceOp::kLor:
    case ReduceOp::kLxor:
      return kind == NumberKind::kInteger || kind == NumberKind::kBool;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return kind == NumberKind::kInteger;
  }
  return false;
}

/// The types of a reduction: the caller's arrays have `type`; partial results are held and sent as `accumulator`.
struct Elements {
  DataType type = DataType::kFloat32;
  DataType accumulator = DataType::kFloat32;

  bool widened() const { return type != accumulator; }
};

/// 16-bit floats accumulate in float32. Averages of integers accumulate in 64 bits, because a sum may overflow the type
/// although the average does not.
constexpr Elements elements_of(DataType type, ReduceOp op) {
  if (type == DataType::kFloat16 || type == DataType::kBfloat16) return {type, DataType::kFloat32};
  const bool widens = op == ReduceOp::kAvg && traits_of(type).kind == NumberKind::kInteger && type != DataType::kUint64;
  return {type, widens ? DataType::kInt64 : type};
}

}  // namespace pyc
