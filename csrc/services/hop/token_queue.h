// TokenQ(i -> j) of section 4.2: rank i keeps it for its in-neighbor j, which takes a token out for each iteration that
// it enters; i puts one in for each that it enters itself. So there are Iter(i) - Iter(j) + max_ig tokens in it.
//
// Tokens have no contents: two counters that only grow are the queue. Each has one writer, so that on a node both ranks
// use it where it lies, without a lock. Between nodes each of them has a copy, to which it adds what the other tells.
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
  /// InternalError if there are not as many.
  void remove(Iteration tokens) {
    if (size() < tokens) throw InternalError("a token is taken out of an empty token queue");
    counters_->removed.fetch_add(tokens);
  }

 private:
  Counters* counters_;
  Iteration max_ig_;
};

}  // namespace pyc
