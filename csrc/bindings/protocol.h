// What the bindings of all collectives have in common: the end, and what is known of one.
#pragma once

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "bindings/gil.h"

namespace pyc {

/// What `statistics` of every collective has.
template <class Kind>
py::dict common_statistics(const Kind& collective) {
  py::dict out;
  out["waited"] = collective.waited();
  out["memory_bytes"] = collective.memory_bytes();
  return out;
}

/// What every collective has: `leave`, `check_usable`, `closed`. `Bound`: *bound is the collective.
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

/// ... of those that are left without more.
template <class Bound>
void define_leave(Definitions definitions) {
  definitions.method("leave", "", [](Bound& b) {
    const GilReleased released;
    (*b).close();
  });
}

}  // namespace pyc
