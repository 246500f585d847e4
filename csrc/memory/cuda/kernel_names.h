#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/types.h"

namespace pyc::cuda {

/// All kernels by their names in the device code.
std::span<const std::string_view> kernel_names();

/// Empty if there is no such kernel. Bitwise and logical operations exist only on the host. `divides`: with a divisor.
std::string fold_kernel(ReduceOp op, DataType type, bool divides);
std::string load_kernel(DataType type);
std::string store_kernel(DataType type);
std::string weighted_sum_kernel(DataType type);

/// The elements in a kernel's view: complex numbers are two floats.
struct KernelElements {
  DataType type;
  std::size_t per_element;
};
constexpr KernelElements kernel_elements(DataType type) {
  if (type == DataType::kComplex64) return {DataType::kFloat32, 2};
  if (type == DataType::kComplex128) return {DataType::kFloat64, 2};
  return {type, 1};
}

}  // namespace pyc::cuda
