#include "zipline/incremental.h"

#include <algorithm>
#include <limits>

namespace pyc::zipline {
namespace {

/// Windows of the root at the limit: enough that updates seldom leave none, few enough to cost nothing.
constexpr std::size_t kKept = 64;

template <class Time>
bool is_shorter(const Window<Time>& a, const Window<Time>& b) {
  return a.length() < b.length();
}

}  // namespace

template <class Time>
Incremental<Time>::Incremental(const Rows<Time>& rows) : size_(rows.size()), nodes_(2 * rows.size()) {
  check_rows(rows);
  for (std::size_t worker = 0; worker < size_; ++worker) set_row(worker, rows[worker]);
  make_tree();
  choose_shortest();
}

template <class Time>
const Barrier<Time>& Incremental<Time>::update(std::size_t worker, std::span<const Time> row) {
  check_row(worker, row);
  set_row(worker, row);
  for (std::size_t node = (size_ + worker) / 2; node >= 1; node /= 2) join_children(node);
  if (nodes_[1].empty()) {
    make_tree();
  } else {
    tighten_limit();
  }
  barrier_.iterations[worker] = iteration_of(worker);
  choose_shortest();
  return barrier_;
}

template <class Time>
void Incremental<Time>::set_row(std::size_t worker, std::span<const Time> row) {
  Windows<Time>& leaf = nodes_[size_ + worker];
  leaf.clear();
  for (const Time time : row) leaf.push_back({time, time});
}

template <class Time>
void Incremental<Time>::join_children(std::size_t node) {
  join(nodes_[2 * node], nodes_[2 * node + 1], limit_, nodes_[node], scratch_);
}

template <class Time>
void Incremental<Time>::make_tree() {
  limit_ = std::numeric_limits<Time>::max();
  for (std::size_t node = size_ - 1; node >= 1; --node) join_children(node);
  if (!tighten_limit()) return;
  for (std::size_t node = 1; node < size_; ++node) {
    std::erase_if(nodes_[node], [&](const Window<Time>& window) { return window.length() > limit_; });
  }
}

/// If the root has many windows, lowers the limit to the length of the kKept-th shortest.
template <class Time>
bool Incremental<Time>::tighten_limit() {
  if (nodes_[1].size() <= 2 * kKept) return false;
  scratch_ = nodes_[1];
  const auto last = scratch_.begin() + (kKept - 1);
  std::nth_element(scratch_.begin(), last, scratch_.end(), &is_shorter<Time>);
  limit_ = last->length();
  return true;
}

/// Of equally short windows the first, which is the earliest. The iterations only change with the barrier.
template <class Time>
void Incremental<Time>::choose_shortest() {
  const Window<Time> shortest = *std::min_element(nodes_[1].begin(), nodes_[1].end(), &is_shorter<Time>);
  const bool stays = !barrier_.iterations.empty() && barrier_.t_sync == shortest.end;
  barrier_.d = shortest.length();
  barrier_.t_sync = shortest.end;
  if (stays) return;
  barrier_.iterations.resize(size_);
  for (std::size_t worker = 0; worker < size_; ++worker) barrier_.iterations[worker] = iteration_of(worker);
}

template <class Time>
std::int64_t Incremental<Time>::iteration_of(std::size_t worker) const {
  const Windows<Time>& row = nodes_[size_ + worker];
  const auto is_before = [](Time time, const Window<Time>& point) { return time < point.end; };
  return std::upper_bound(row.begin(), row.end(), barrier_.t_sync, is_before) - row.begin() - 1;
}

template class Incremental<std::int64_t>;
template class Incremental<double>;

}  // namespace pyc::zipline
