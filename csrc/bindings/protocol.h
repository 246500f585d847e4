// Bindings that all collectives share.
#pragma once

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "bindings/gil.h"

namespace pyc {

template <class Kind>
py::dict common_statistics(const Kind& collective) {
  py::dict out;
  out["waited"] = collective.waited();
  out["memory_bytes"] = collective.memory_bytes();
  return out;
}

/// Defines `check_usable` and `closed`, which every collective has. `Bound`: *bound is the collective.
template <class Bound>
void define_protocol(Definitions definitions) {
  definitions
      .method("check_usable", "",
              [](Bound& b) {
                const GilReleased released;
                (*b).check_usable();
              })
      .property("closed", [](Bound& b) { return (*b).closed(); });
}

/// Defines `leave`, for collectives that leave without arguments.
template <class Bound>
void define_leave(Definitions definitions) {
  definitions.method("leave", "", [](Bound& b) {
    const GilReleased released;
    (*b).close();
  });
}

}  // namespace pyc
