// The leader of a node with data on devices: copies between device and host, and rounds after a device has failed.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "services/partial_allreduce/leader.h"

namespace pyc {

bool Leader::advance_devices() {
  bool moved = false;
  while (const std::optional<OpId> done = staging_->take_done()) {
    if (staging_->error() && !is_lost_) lose_data(staging_->error());
    current_->run->on_copied(*done);
    current_->run->pump();
    moved = true;
  }
  if (!is_told_ && board_.failed()) tell_failure();
  return moved;
}

/// Calls `work` of the board's round. If a device fails in it, the next `advance` continues without data.
bool Leader::work(Lock& lock) {
  if (staging_ == nullptr) return board_.round().work(lock, memory_);
  try {
    return board_.round().work(lock, memory_);
  } catch (const DeviceError&) {
    if (lock.owns_lock()) lock.unlock();
    lose_data(std::current_exception());
    return false;
  }
}

void Leader::lose_data(const std::exception_ptr& error) {
  inspector_.check_alive();  // a dead rank's memory may be gone: then report the death
  board_.fail(error);
  lose_data();
}

/// From now on this node takes part without data, and no node may use the data that it has sent in this round. Every
/// message still finds its receive, so the ranks of all nodes can close.
void Leader::lose_data() {
  is_lost_ = true;
  if (current_ != nullptr) current_->run->fail();
}

/// Only departures count. The board stays as it is, since no rank receives a result anymore.
void Leader::take_part_without_data() {
  const Lock lock(board_.mutex());
  const Presence own{.left = static_cast<std::uint32_t>(board_.ranks().left().count()),
                     .closed = static_cast<std::uint32_t>(board_.ranks().closed().count()),
                     .initiator = initiator_};
  const std::vector<std::uint64_t> nobody(board_.shape().member_words());
  current_->run->presence().assign(data_blocks_, own, nobody);
  current_->run->fail();
}

/// Sends the rank and the text of the failure to the other nodes, in as many messages as necessary.
void Leader::tell_failure() {
  const std::optional<Board::DeviceFailure> failure = board_.device_failure();
  if (!failure) return;  // a failure of the engine, which sends nothing anymore
  is_told_ = true;
  lose_data();
  constexpr std::size_t kMost = mailbox::kLongestTail<DeviceFailure>;
  for (std::size_t first = 0; first == 0 || first < failure->text.size(); first += kMost) {
    const std::span<const char> part = std::span(failure->text).subspan(first);
    const std::span<const char> sent = part.first(std::min(part.size(), kMost));
    const DeviceFailure message{.rank = failure->rank, .more = part.size() > kMost ? 1U : 0U};
    for (Rank node = 0; node < nodes_.count(); ++node) {
      if (node != node_) messages_.send(nodes_.leader(node), message, sent);
    }
  }
}

void Leader::hear_failure(const DeviceFailure& message, std::span<const char> text) {
  std::string& known = failure_texts_[message.rank];
  known.append(text.begin(), text.end());
  if (message.more != 0) return;
  is_told_ = true;
  board_.fail_device(message.rank, known);
  lose_data();
}

}  // namespace pyc
