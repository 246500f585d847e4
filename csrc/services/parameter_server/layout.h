// The partition of the weights into shards of nearly equal length, one per server. A server keeps its shard in the
// accumulator type: 16-bit floats are stored, summed and updated in float32, and narrowed when a worker reads them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "core/types.h"
#include "services/parameter_server/options.h"
#include "services/parameter_server/table.h"

namespace pyc::server {

class Layout {
 public:
  explicit Layout(const Options& options) : options_(options), elements_(elements_of(options.type, ReduceOp::kSum)) {}

  const Options& options() const { return options_; }
  Elements elements() const { return elements_; }
  std::size_t element_bytes() const { return size_of(elements_.type); }
  std::size_t wide_bytes() const { return size_of(elements_.accumulator); }

  std::size_t workers() const { return options_.workers.size(); }
  std::size_t shards() const { return options_.servers.size(); }
  std::size_t first(std::size_t shard) const { return std::min(options_.count, units() * shard / shards() * unit()); }
  std::size_t count(std::size_t shard) const { return first(shard + 1) - first(shard); }

  std::optional<Worker> worker_of(Rank rank) const { return place(options_.workers, rank); }
  std::optional<std::size_t> shard_of(Rank rank) const { return place(options_.servers, rank); }
  Rank coordinator() const { return options_.servers.front(); }

 private:
  static std::optional<std::size_t> place(const std::vector<Rank>& ranks, Rank rank) {
    const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (found == ranks.end() || *found != rank) return std::nullopt;
    return static_cast<std::size_t>(found - ranks.begin());
  }
  /// Shards begin at cache lines, unless there are fewer lines than shards.
  std::size_t unit() const {
    const std::size_t line = 64 / wide_bytes();
    return options_.count / line >= shards() ? line : 1;
  }
  std::size_t units() const { return (options_.count + unit() - 1) / unit(); }

  const Options& options_;
  const Elements elements_;
};

}  // namespace pyc::server
