// TokenQ(i -> j) of section 4.2. Rank i keeps it for its in-neighbor j: j removes a token for each iteration that it
// enters, and i inserts one for each that it enters itself. It therefore has Iter(i) - Iter(j) + max_ig tokens.
//
// Tokens have no contents, so the queue is two counters that only grow. Each has one writer, so ranks of a node use it
// in place without a lock. Between nodes each rank has a copy, which the other's messages update.
#pragma once

#include <atomic>
#include <cstddef>

#include "core/error.h"
#include "services/hop/options.h"

namespace pyc {

class TokenQueue {
 public:
  /// Zeroed memory is a queue of `max_ig` tokens.
  struct Counters {
    static constexpr std::size_t kLine = 64;
    alignas(kLine) std::atomic<Iteration> inserted{0};
    alignas(kLine) std::atomic<Iteration> removed{0};
  };

  TokenQueue(Counters& counters, Iteration max_ig) : counters_(&counters), max_ig_(max_ig) {}

  Iteration size() const { return max_ig_ + counters_->inserted.load() - counters_->removed.load(); }
  void insert(Iteration tokens) { counters_->inserted.fetch_add(tokens); }
  void remove(Iteration tokens) {
    if (size() < tokens) throw InternalError("a token is taken out of an empty token queue");
    counters_->removed.fetch_add(tokens);
  }

 private:
  Counters* counters_;
  Iteration max_ig_;
};

}  // namespace pyc
