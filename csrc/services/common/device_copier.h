// What runs have done on the devices that have their data: queued, and polled. No call waits.
//
// A device that fails is no exception here: what it was asked for is done, and `error` says why it is worth nothing. So
// the run goes on, and all who wait for its messages are told.
//
// Under the engine's progress lock.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>

#include "engine/run.h"
#include "memory/executor.h"

namespace pyc {

class DeviceCopier : public Copier {
 public:
  /// Memory of the host for the plan's `staging`, of a run.
  virtual std::byte* of_run(std::size_t run) const = 0;
  /// The op of something that is done, each once; nothing if there is none.
  virtual std::optional<OpId> take_done() = 0;
  /// What the device has failed with; null: it has not.
  const std::exception_ptr& error() const { return error_; }
  /// Rounds go on without data, here or elsewhere: what waits for other ranks' devices is given up.
  virtual void give_up() = 0;
  /// At the end: waits for what is under way.
  virtual void finish() = 0;

 protected:
  /// Whether the device has not failed in it.
  template <class Action>
  bool attempt(Action action) {
    try {
      action();
      return true;
    } catch (const DeviceError&) {
      if (!error_) error_ = std::current_exception();
      return false;
    }
  }

 private:
  std::exception_ptr error_;
};

}  // namespace pyc
