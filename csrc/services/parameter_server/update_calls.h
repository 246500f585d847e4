// An update function on a server. A thread of the application calls it, so that the engine's progress waits neither for
// the function nor for Python's global lock. The server requests one call at a time and polls for its end. After a call
// that throws, there are no others.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "core/lock_order.h"
#include "memory/memory.h"
#include "services/parameter_server/update_rule.h"

namespace pyc::server {

class UpdateCalls {
 public:
  /// `gradient`: the buffer passed to the function. `memory`: contains the weights, and is kept alive during calls.
  UpdateCalls(Update function, BufferPtr gradient, std::shared_ptr<std::byte> memory)
      : function_(std::move(function)), gradient_(std::move(gradient)), memory_(std::move(memory)) {}

  // ---- the server

  /// Filled by the server before each call.
  std::byte* gradient() const { return gradient_.get(); }
  void ask(std::byte* weights);
  bool is_done() const;
  bool has_thrown() const;
  /// Ends the thread. Does not wait for a call under way.
  void end();

  // ---- the thread

  /// Makes the calls until `end`. Rethrows the function's exception.
  void serve();

 private:
  void call(std::byte* weights);

  const Update function_;
  const BufferPtr gradient_;
  const std::shared_ptr<std::byte> memory_;
  mutable Ordered<LockRank::kUpdateCalls> mutex_;  // protects the members below
  OrderedCondition changed_;
  std::byte* weights_ = nullptr;  // of the call that is requested or under way
  bool has_thrown_ = false;
  bool ended_ = false;
};

}  // namespace pyc::server
