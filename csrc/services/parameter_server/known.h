// What is there by the protocol.
#pragma once

#include <optional>
#include <utility>

#include "core/error.h"

namespace pyc::server {

/// The value; InternalError if there is none.
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
