// Failures in pairwise averaging: dead ranks, failed devices, and averages after a failure of the engine.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "services/neighbor_averaging/pairwise_averaging.h"

namespace pyc {
namespace {

constexpr Seconds kLookPeriod = 0.25;  // one system call per neighbor

}  // namespace

void PairwiseAveraging::before_call() {
  engine_->check_process();
  if (closed()) throw ClosedError("'" + name() + "' is closed");
  if (device_ != nullptr) tell_failed_devices();
  if (failed_) tell_failure();
  const Seconds now = engine_->transport().now();
  if (now < next_tell_) return;
  next_tell_ = now + kLookPeriod;
  if (failed_ || engine_->progress() == Progress::kCaller) look_at_neighbors(now);
  tell_deaths();
}

void PairwiseAveraging::look_at_neighbors(Seconds now) {
  if (now < next_look_) return;
  next_look_ = now + kLookPeriod;
  for (const Rank neighbor : choice_.all()) {
    if (!gone_[static_cast<std::size_t>(neighbor)] && is_local(neighbor)) is_gone(neighbor);
  }
}

/// Whether a neighbor's process on this node has ended before it left.
bool PairwiseAveraging::is_gone(Rank neighbor) {
  const std::size_t local = nodes_.local_rank_of(neighbor);
  const bool gone = !board_->has_left(local) && state_of(board_->process(local)) == ProcessState::kGone;
  if (gone) gone_[static_cast<std::size_t>(neighbor)] = true;
  return gone;
}

// ------------------------------------------------------------------------------------------------ devices

void PairwiseAveraging::note_failure(const std::string& text) {
  board_->note_failure(text);
  engine_->exclusively([this] { announce_failure(); });
}

bool PairwiseAveraging::has_failed_device(Rank rank) const {
  if (device_ == nullptr) return false;
  return is_local(rank) ? board_->has_failed(nodes_.local_rank_of(rank))
                        : device_failed_[static_cast<std::size_t>(rank)].load();
}

/// If this rank's device has failed, ends its averages and notifies other ranks.
void PairwiseAveraging::announce_failure() {
  if (is_failure_announced_ || !has_failed_device(rank())) return;
  is_failure_announced_ = true;
  if (messages_) messages_->fail();
  if (!failed_ && !is_over()) mailbox_->broadcast(ModelLost{});
}

void PairwiseAveraging::check_device() const {
  if (has_failed_device(rank())) throw DeviceError(device_failure(rank()));
}

std::string PairwiseAveraging::device_failure(Rank rank) const {
  const std::string text = is_local(rank) ? board_->failure(nodes_.local_rank_of(rank)) : "its device has failed";
  return "'" + name() + "': rank " + std::to_string(rank) + ": " + text;
}

/// Throws DeviceError if this rank's device has failed, and std::runtime_error once for each neighbor's.
void PairwiseAveraging::tell_failed_devices() {
  check_device();
  for (const Rank neighbor : choice_.all()) {
    if (!has_failed_device(neighbor) || told_[static_cast<std::size_t>(neighbor)].exchange(true)) continue;
    throw std::runtime_error(device_failure(neighbor) +
                             "; this call changed nothing, and later ones go on without that rank");
  }
}

// ------------------------------------------------------------------------------------------------ deaths

/// Throws RankFailedError once for each dead neighbor.
void PairwiseAveraging::tell_deaths() {
  std::vector<Rank> gone;
  for (const Rank neighbor : choice_.all()) {
    if (gone_[static_cast<std::size_t>(neighbor)] && !told_[static_cast<std::size_t>(neighbor)]) {
      gone.push_back(neighbor);
    }
  }
  if (gone.empty()) return;
  std::vector<Rank> dead;
  if (failed_) {
    dead = std::move(gone);
  } else if (!engine_->exclusively_if_free([&] { dead = engine_->failures().dead_if_gone(std::move(gone)); })) {
    next_tell_ = 0;  // MPI requires the progress lock: the next call asks again
  }
  tell(std::move(dead));
}

void PairwiseAveraging::tell(std::vector<Rank> dead) {
  std::erase_if(dead, [this](Rank rank) {
    const auto& all = choice_.all();
    const bool is_neighbor = std::find(all.begin(), all.end(), rank) != all.end();
    const bool ends_messages = messages_ && failed_;
    gone_[static_cast<std::size_t>(rank)] = true;
    return !(is_neighbor || ends_messages) || told_[static_cast<std::size_t>(rank)].exchange(true);
  });
  if (dead.empty()) return;
  const std::string what = "this call changed nothing, and later ones go on without";
  const std::string ended = "; but models are averaged with ranks of other nodes no more";
  throw died("'" + name() + "'", dead, messages_ ? what + ended : what);
}

void PairwiseAveraging::set_told(const std::vector<Rank>& dead) {
  if (dead.empty()) told_failure_ = true;
  for (const Rank rank : dead) {
    gone_[static_cast<std::size_t>(rank)] = true;
    told_[static_cast<std::size_t>(rank)] = true;
  }
}

/// Throws the engine's error, unless it names dead ranks that averages on this node can continue without.
void PairwiseAveraging::tell_failure() {
  try {
    engine_->check();
  } catch (const RankFailedError& error) {
    if (error.ranks().empty() && !told_failure_.exchange(true)) throw;
    tell(error.ranks());
  }
}

void PairwiseAveraging::on_engine_failure(const std::exception_ptr&) {
  if (messages_) messages_->give_up();
  failed_ = true;
}

/// Without an engine, the application's calls average with neighbors on this node.
void PairwiseAveraging::average_without_engine() {
  engine_->exclusively([this] {
    if (messages_) messages_->take_back();
    const Seconds now = engine_->transport().now();
    if (!on_node_ && (!may_begin(now) || !begin(now))) return;
    while (on_node_) advance_on_node(MessageAverage::kBytesPerPass);
  });
}

}  // namespace pyc
