// The candidate solution Z of ZipLineOpt and ZipLineOptBS: an array in the order of time (ElasticBSP, section 5.3.1).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "zipline/timeline.h"

namespace pyc::zipline {

template <class Time>
class Candidate {
 public:
  using Iterator = typename std::vector<Event<Time>>::iterator;

  explicit Candidate(std::size_t workers) : array_(2 * workers + 1), begin_(array_.begin()), end_(array_.begin()) {}

  Iterator begin() { return begin_; }
  Iterator end() { return end_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  const Event<Time>& oldest() const { return *begin_; }

  /// Occasionally moves all points to the front, where the oldest ones have left room.
  void append(const Event<Time>& e) {
    if (end_ == array_.end()) {
      end_ = std::move(begin_, end_, array_.begin());
      begin_ = array_.begin();
    }
    *end_++ = e;
  }
  /// Moves nothing, since the next point becomes the oldest.
  void remove_oldest() { ++begin_; }
  /// Moves all later points by one place, as in the paper.
  void remove(Iterator place) { end_ = std::move(place + 1, end_, place); }

 private:
  std::vector<Event<Time>> array_;
  Iterator begin_;
  Iterator end_;
};

}  // namespace pyc::zipline
