// A function in place of an update rule, where servers serve: a thread that is lent calls it, so that the engine's
// progress waits neither for the function nor for what it needs (Python's global lock).
//
// The server asks for one call at a time, and looks now and then whether it is done. After a call that throws there is
// no other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

#include "memory/memory.h"
#include "services/parameter_server/update_rule.h"

namespace pyc::server {

class UpdateCalls {
 public:
  /// `gradient`: for what the function is given. `memory`: where the weights lie; it stays for as long as a call.
  UpdateCalls(Update function, BufferPtr gradient, std::shared_ptr<std::byte> memory)
      : function_(std::move(function)), gradient_(std::move(gradient)), memory_(std::move(memory)) {}

  // ---- the server

  /// To be filled before a call.
  std::byte* gradient() const { return gradient_.get(); }
  void ask(std::byte* weights);
  /// Whether the call that was asked for last is over.
  bool is_done() const;
  bool has_thrown() const;
  /// There are no more calls: the thread ends. One under way is not waited for.
  void end();

  // ---- the thread

  /// Makes the calls, until `end`; throws what the function throws.
  void serve();

 private:
  void call(std::byte* weights);

  const Update function_;
  const BufferPtr gradient_;
  const std::shared_ptr<std::byte> memory_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::byte* weights_ = nullptr;  // of the call that is asked for or under way
  bool has_thrown_ = false;
  bool ended_ = false;
};

}  // namespace pyc::server
