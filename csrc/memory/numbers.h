// Access to numbers in memory that may be unaligned and have any declared type.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/types.h"

namespace pyc {

template <class T>
T load_at(const std::byte* from, std::size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store_at(std::byte* into, std::size_t i, T value) {
  std::memcpy(into + i * sizeof(T), &value, sizeof(T));
}

/// Calls action(float{}) or action(double{}).
template <class Action>
auto of_float(DataType type, const char* what, Action action) {
  if (type == DataType::kFloat32) return action(float{});
  if (type == DataType::kFloat64) return action(double{});
  throw InternalError(std::string(what) + ": neither float32 nor float64");
}

}  // namespace pyc
