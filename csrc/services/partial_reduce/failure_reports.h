// That a rank's device has failed, told to all ranks: a text, in pieces.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "core/types.h"
#include "services/common/mailbox.h"

namespace pyc {

/// The last piece is not full.
struct DeviceFailed {
  using Tail = char;
};

class FailureReports {
 public:
  static constexpr std::size_t kLongestText = 240;

  /// To all of `size` ranks but `self`.
  template <class Mailbox>
  static void send(const Mailbox& mailbox, Rank size, Rank self, const std::string& text) {
    constexpr std::size_t kMost = mailbox::kLongestTail<DeviceFailed>;
    const std::string sent = text.substr(0, kLongestText);
    for (Rank rank = 0; rank < size; ++rank) {
      if (rank == self) continue;
      for (std::size_t first = 0; first <= sent.size(); first += kMost) {
        mailbox.send(rank, DeviceFailed{}, sent.substr(first, kMost));
      }
    }
  }

  void take(Rank from, std::span<const char> piece) {
    texts_[from].append(piece.data(), piece.size());
    const bool is_last = piece.size() < mailbox::kLongestTail<DeviceFailed>;
    if (is_last && !first_) first_ = "rank " + std::to_string(from) + ": " + texts_[from];
  }

  /// What was told first, with the rank.
  const std::optional<std::string>& first() const { return first_; }

 private:
  std::map<Rank, std::string> texts_;
  std::optional<std::string> first_;
};

}  // namespace pyc
