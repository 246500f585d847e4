// Bindings that all collectives share.
#pragma once

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/c_functions.h"
#include "bindings/calls.h"
#include "bindings/gil.h"
#include "core/one_thread.h"

namespace pyc {

inline py::buffer_info requested(const py::buffer& values, bool writable, const std::string& name, std::size_t count) {
  py::buffer_info memory = values.request(writable);
  if (static_cast<std::size_t>(memory.size) == count) return memory;
  throw std::invalid_argument("'" + name + "': expected " + std::to_string(count) + " elements, got " +
                              std::to_string(memory.size));
}

/// A collective that one thread at a time may use.
template <class Kind>
class BoundCollective {
 public:
  explicit BoundCollective(std::shared_ptr<Kind> made) : collective_(std::move(made)) {}
  /// `make` creates the collective, without the GIL.
  template <class Make>
  explicit BoundCollective(Make make) : collective_(without_gil(make)) {}

  Kind& operator*() const { return *collective_; }

  /// Calls `action` with the collective, without the GIL. std::runtime_error if another thread is in such a call.
  template <class Action>
  auto exclusively(Action action) {
    const OneThread one = alone();
    return without_gil([&] { return action(*collective_); });
  }
  /// std::invalid_argument unless `values` have the collective's number of elements.
  py::buffer_info memory_of(const py::buffer& values, bool writable) const {
    return requested(values, writable, collective_->name(), collective_->options().count);
  }
  py::dict statistics() const {
    py::dict out;
    out["waited"] = collective_->waited();
    out["memory_bytes"] = collective_->memory_bytes();
    return out;
  }

 protected:
  OneThread alone() { return {in_use_, collective_->name()}; }

  /// The handle of calls from C, which lives as long as this object. `rest`: of the handle's constructor.
  template <class Handle, class... Rest>
  py::capsule handle_of(Seconds default_limit, Rest&&... rest) {
    if (!handle_) {
      const auto& options = collective_->options();
      handle_ = std::make_unique<Handle>(
          pyc_collective::Common{options.name, options.count, options.type, &in_use_, default_limit, interrupt_c_call},
          collective_, std::forward<Rest>(rest)...);
    }
    return capsule_of(handle_.get());
  }

 private:
  std::shared_ptr<Kind> collective_;
  std::atomic_flag in_use_;
  std::unique_ptr<pyc_collective> handle_;
};

/// Defines `check_usable` and `closed`, which every collective has. `Bound`: *bound is the collective.
template <class Bound>
void define_usable(Definitions definitions) {
  definitions.method("check_usable", "", [](Bound& b) { without_gil([&] { (*b).check_usable(); }); })
      .property("closed", [](Bound& b) { return (*b).closed(); });
}

/// Also defines `leave`, for collectives that leave without arguments.
template <class Bound>
void define_protocol(Definitions definitions) {
  define_usable<Bound>(definitions);
  definitions.method("leave", "", [](Bound& b) { without_gil([&] { (*b).close(); }); });
}

}  // namespace pyc
