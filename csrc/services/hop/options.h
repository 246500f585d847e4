// What a Hop of one rank is: its graph, and how it waits for its neighbors. Of modes nothing but these numbers is known
// here: standard is no backup worker and no staleness.
//
// Reference: Luo et al., "Hop: Heterogeneity-aware Decentralized Training", ASPLOS 2019. Sections, figures and
// equations in this folder are its.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace pyc {

/// The number of an iteration, from 0; or how many of them.
using Iteration = std::uint64_t;
inline constexpr Iteration kNeverIteration = std::numeric_limits<Iteration>::max();

/// Section 5: a rank that is more than `trigger` iterations behind all its out-neighbors goes on by up to `max_jump`.
struct HopSkip {
  Iteration max_jump;
  Iteration trigger;
};

struct HopOptions {
  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;  ///< a float type
  Iteration max_ig = 5;                ///< section 4.2, at least 1
  std::uint64_t backup = 0;            ///< N_buw of section 4.3: updates of an iteration that need not have come
  std::optional<Iteration> staleness;  ///< max_staleness of section 4.4
  bool acks = false;                   ///< NOTIFY-ACK, section 3.3
  std::optional<HopSkip> skip;
  bool serial = false;                     ///< section 3.2: apply, send, receive; else send, receive, apply
  bool checks = false;                     ///< Table 1 for each pair of neighbors, whenever an iteration begins
  std::optional<Iteration> tokens;         ///< of each token queue at first, if not max_ig
  std::vector<std::vector<Rank>> in, out;  ///< neighbors of every rank, ascending, without itself

  const std::vector<Rank>& in_of(Rank rank) const { return in[static_cast<std::size_t>(rank)]; }
  const std::vector<Rank>& out_of(Rank rank) const { return out[static_cast<std::size_t>(rank)]; }
  /// Where the in-neighbor `sender` of `receiver` stands in the list of them.
  std::size_t position(Rank receiver, Rank sender) const {
    const std::vector<Rank>& all = in_of(receiver);
    return static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), sender) - all.begin());
  }
  /// In- and out-neighbors of a rank, ascending.
  std::vector<Rank> neighbors_of(Rank rank) const {
    std::vector<Rank> all = in_of(rank);
    all.insert(all.end(), out_of(rank).begin(), out_of(rank).end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  Iteration first_tokens() const { return tokens.value_or(max_ig); }
  Elements elements() const { return elements_of(type, ReduceOp::kSum); }
  std::size_t bytes() const { return count * size_of(type); }
  /// Of a slot: a message has at least a byte.
  std::size_t update_bytes() const { return std::max<std::size_t>(bytes(), 1); }
  /// Sub-queues of an update queue, section 6.1.
  Iteration sub_queues() const { return max_ig + 1; }
  /// Whether a receiver in iteration `receiver` has no use for an update of iteration `of`, section 6.2.
  bool is_stale(Iteration of, Iteration receiver) const { return of + staleness.value_or(0) < receiver; }
};

}  // namespace pyc
