// The vocabulary that every layer shares: who (ranks), what (element types, operations) and which (round numbers).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

namespace pyc {

/// A process of a communicator, 0 <= rank < size.
using Rank = std::int32_t;

/// "No rank": larger than every rank, so that taking the minimum over ranks ignores it.
inline constexpr Rank kNoRank = std::numeric_limits<Rank>::max();

/// Separates the messages of different operations between the same two ranks.
using Tag = std::int32_t;

/// The n-th execution of a persistent collective, counted from 0.
using RoundNumber = std::uint64_t;
inline constexpr RoundNumber kNoRound = ~RoundNumber{0};

/// Library time unit.
using Seconds = double;

enum class DataType : std::uint8_t { kFloat16, kBfloat16, kFloat32, kFloat64, kInt8, kInt16, kInt32, kInt64, kUint8 };

enum class ReduceOp : std::uint8_t { kSum, kProd, kMin, kMax, kAvg };

/// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kInt16:
      return 2;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
  }
  return 0;
}

/// The elements of a reduction: the type of the caller's arrays, and that in which partial results are held and travel.
struct Elements {
  DataType type = DataType::kFloat32;
  DataType accumulator = DataType::kFloat32;

  bool widened() const { return type != accumulator; }
};

/// 16-bit floats accumulate in float32. Integers to be averaged accumulate in int64: their sum may exceed their type
/// where their average does not.
constexpr Elements elements_of(DataType type, ReduceOp op) {
  if (type == DataType::kFloat16 || type == DataType::kBfloat16) return {type, DataType::kFloat32};
  const bool is_float = type == DataType::kFloat32 || type == DataType::kFloat64;
  return {type, op == ReduceOp::kAvg && !is_float ? DataType::kInt64 : type};
}

constexpr std::string_view name_of(DataType type) {
  constexpr std::string_view names[] = {"float16", "bfloat16", "float32", "float64", "int8",
                                        "int16",   "int32",    "int64",   "uint8"};
  return names[static_cast<std::size_t>(type)];
}

constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view names[] = {"SUM", "PROD", "MIN", "MAX", "AVG"};
  return names[static_cast<std::size_t>(op)];
}

}  // namespace pyc
