#include "memory/cuda/kernel_names.h"

#include <algorithm>
#include <array>

#include "memory/cuda/kernel_list.h"

namespace pyc::cuda {
namespace {

#define PYC_NAME(name, ...) "pyc_" #name,
// NOLINTNEXTLINE(bugprone-suspicious-missing-comma): the macro has it
constexpr std::string_view kNames[] = {PYC_CUDA_KERNELS(PYC_NAME)};
#undef PYC_NAME

/// Integers of the same width share the kernels that do not depend on the sign.
DataType unsigned_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return DataType::kUint8;
    case DataType::kInt16:
      return DataType::kUint16;
    case DataType::kInt32:
      return DataType::kUint32;
    case DataType::kInt64:
      return DataType::kUint64;
    default:
      return type;
  }
}

std::string_view name_of_fold(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return "sum";
    case ReduceOp::kProd:
      return "prod";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    default:
      return "";
  }
}

/// Returns pyc_FAMILY_TYPE, or "" if there is no such kernel.
std::string existing(const std::string& family, DataType type) {
  std::string name = "pyc_" + family + "_" + std::string(name_of(type));
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames) ? name : "";
}

}  // namespace

std::span<const std::string_view> kernel_names() { return kNames; }

std::string fold_kernel(ReduceOp op, DataType type, bool divides) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAvg;
  if (traits_of(type).kind != NumberKind::kInteger) {
    return divides && !sums ? "" : existing("fold_" + std::string(name_of_fold(op)), type);
  }
  const bool widens = elements_of(type, op).widened();
  if (op == ReduceOp::kAvg && (divides || widens)) return existing("fold_avg", type);
  if (divides) return "";
  return existing("fold_" + std::string(name_of_fold(op)), sums || op == ReduceOp::kProd ? unsigned_of(type) : type);
}

std::string load_kernel(DataType type) { return existing("load", type); }
std::string store_kernel(DataType type) { return existing("store", type); }
std::string weighted_sum_kernel(DataType type) { return existing("weighted_sum", type); }

}  // namespace pyc::cuda
