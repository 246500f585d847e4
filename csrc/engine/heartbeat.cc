#include "engine/heartbeat.h"

#include <algorithm>
#include <span>
#include <utility>

namespace pyc {

void Heartbeat::start(std::vector<int> machines, Seconds limit, Seconds now) {
  machines_ = std::move(machines);
  limit_ = limit;
  next_ = asked_ = now;
  heard_.assign(static_cast<std::size_t>(*std::max_element(machines_.begin(), machines_.end())) + 1, now);
}

bool Heartbeat::is_due(Seconds now) {
  if (now < next_) return false;
  next_ = now + period();
  return true;
}

void Heartbeat::speak(const std::vector<Rank>& dead) {
  auto rest = dead.begin();
  do {
    Message message{control(Control::kHeartbeat), 0, {}};
    message.count = static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(dead.end() - rest, kMostNamed));
    std::copy_n(rest, message.count, message.dead);
    rest += message.count;
    for (Rank r = 0; r < static_cast<Rank>(machines_.size()); ++r) {
      if (!is_here(r) && !std::binary_search(dead.begin(), dead.end(), r)) send_(r, bytes_of(message));
    }
  } while (rest != dead.end());
}

void Heartbeat::on_message(Rank from, ConstBytes message, Seconds now) {
  const auto heard = read<Message>(message);
  if (!on()) return;  // not started here yet
  heard_[machine_of(from)] = now;
  const std::span named(heard.dead, std::min(heard.count, kMostNamed));
  dead_.insert(named.begin(), named.end());
}

std::vector<Rank> Heartbeat::lost(Seconds now) {
  const Seconds last = std::exchange(asked_, now);
  if (now - last > period()) std::fill(heard_.begin(), heard_.end(), now);
  std::vector<Rank> ranks;
  for (Rank r = 0; r < static_cast<Rank>(machines_.size()); ++r) {
    if (!is_here(r) && now - heard_[machine_of(r)] > limit_) ranks.push_back(r);
  }
  return ranks;
}

}  // namespace pyc
