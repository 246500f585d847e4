// Reports of a device failure to other ranks: a text, in pieces.
#pragma once

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

  /// To all `ranks` except `self`.
  template <class Mailbox, class Ranks>
  static void send(const Mailbox& mailbox, const Ranks& ranks, Rank self, const std::string& text) {
    constexpr std::size_t kMost = mailbox::kLongestTail<DeviceFailed>;
    const std::string sent = text.substr(0, kLongestText);
    for (const Rank rank : ranks) {
      if (rank == self) continue;
      for (std::size_t first = 0; first <= sent.size(); first += kMost) {
        mailbox.send(rank, DeviceFailed{}, sent.substr(first, kMost));
      }
    }
  }

  /// Each rank reports once.
  void take(Rank from, std::span<const char> piece) {
    Report& report = reports_[from];
    report.text.append(piece.data(), piece.size());
    report.is_whole = piece.size() < mailbox::kLongestTail<DeviceFailed>;
    if (report.is_whole && !first_) first_ = of(from);
  }

  /// The first complete report, with its rank.
  const std::optional<std::string>& first() const { return first_; }
  std::optional<std::string> of(Rank rank) const {
    const auto found = reports_.find(rank);
    if (found == reports_.end() || !found->second.is_whole) return std::nullopt;
    return "rank " + std::to_string(rank) + ": " + found->second.text;
  }

 private:
  struct Report {
    std::string text;
    bool is_whole = false;
  };

  std::map<Rank, Report> reports_;
  std::optional<std::string> first_;
};

}  // namespace pyc
