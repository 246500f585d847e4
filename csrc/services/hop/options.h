// Options of Hop: the graph, and how a rank waits for its neighbors. A mode is only a choice of these numbers. This
// folder cites Luo et al., "Hop: Heterogeneity-aware Decentralized Training", ASPLOS 2019.
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

/// An iteration, from 0, or a number of iterations.
using Iteration = std::uint64_t;
inline constexpr Iteration kNeverIteration = std::numeric_limits<Iteration>::max();

/// Section 5: a rank more than `trigger` iterations behind all its out-neighbors jumps ahead by up to `max_jump`.
struct HopSkip {
  Iteration max_jump;
  Iteration trigger;
};

struct HopOptions {
  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;  ///< a float type
  Iteration max_ig = 5;                ///< section 4.2, at least 1
  std::vector<std::uint64_t> backup;   ///< N_buw of Fig. 8: updates that may be missing, by rank
  std::optional<Iteration> staleness;  ///< max_staleness of section 4.4
  bool acks = false;                   ///< NOTIFY-ACK, section 3.3
  std::optional<HopSkip> skip;
  bool serial = false;                     ///< section 3.2: apply, send, receive; otherwise send, receive, apply
  bool checks = false;                     ///< check Table 1 for neighbors whenever an iteration begins
  std::optional<Iteration> tokens;         ///< initial size of token queues, if not max_ig
  std::vector<std::vector<Rank>> in, out;  ///< neighbors of every rank, ascending, without itself

  const std::vector<Rank>& in_of(Rank rank) const { return in[static_cast<std::size_t>(rank)]; }
  const std::vector<Rank>& out_of(Rank rank) const { return out[static_cast<std::size_t>(rank)]; }
  std::size_t position(Rank receiver, Rank sender) const {
    const std::vector<Rank>& all = in_of(receiver);
    return static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), sender) - all.begin());
  }
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
  /// Size of a slot: at least one byte, because a message is not empty.
  std::size_t update_bytes() const { return std::max<std::size_t>(bytes(), 1); }
  Iteration sub_queues() const { return max_ig + 1; }
  /// Whether an update of iteration `of` is too old for a receiver in iteration `receiver` (section 6.2).
  bool is_stale(Iteration of, Iteration receiver) const { return of + staleness.value_or(0) < receiver; }
};

}  // namespace pyc
