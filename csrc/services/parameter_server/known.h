// Access to optional values that must exist by the protocol.
#pragma once

#include <optional>
#include <utility>

#include "core/error.h"

namespace pyc::server {

/// Throws InternalError if there is no value.
template <class Optional>
auto&& known(Optional& value) {
  if (!value) throw InternalError("a parameter server: something is not there that its protocol promises");
  return *value;
}
template <class T>
T known(std::optional<T>&& value) {
  return std::move(known(value));
}

}  // namespace pyc::server
