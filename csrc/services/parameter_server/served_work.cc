// A push and a pull in one pass, if all servers share this worker's memory and each gradient is an update by itself.
// The worker does the work when the server grants it. Copying the gradient into the slot and the weights out of the
// shard would double the memory traffic.
#include <algorithm>
#include <limits>
#include <utility>

#include "services/parameter_server/known.h"
#include "services/parameter_server/served.h"

namespace pyc::server {

bool Served::works_itself(Kind kind) const {
  const bool is_function = options_.update.rule == Rule::kFunction;  // it runs on the server, and may keep state there
  return kind == Kind::kGradient && remote_.empty() && updates_by_each(options_.sync.kind) && !is_function &&
         !is_included_somewhere(clock_.load() + 1);
}

/// Only a server knows the parts that include a push.
bool Served::is_included_somewhere(Clock clock) const {
  return options_.resumed && std::ranges::any_of(options_.resumed->parts, [&](const Resumed::Part& part) {
           return clock <= part.included[worker()];
         });
}

void Served::push_pull(Kind kind, const std::byte* gradient, std::byte* out, const Limit& limit) {
  if (!works_itself(kind)) return ParameterServer::push_pull(kind, gradient, out, limit);
  check_open();
  check_worker();
  wait_for_turn(limit);
  wait_for_room(limit);
  const Seconds begin = track().now();
  const Clock clock = clock_.load() + 1;
  for (const std::size_t s : local_) shard_at(s)->offer_work(worker(), clock);
  tell_push(kind, clock);
  const Version made = do_granted(clock, gradient, out, limit);
  track().add("push", begin, clock);
  wait_for("pull after push " + std::to_string(clock), [&] { return is_released(clock); }, limit);
  if (made < outcome().version) return fetch(out, limit, 0);  // released later, or gradient discarded
  given_.store(made);
}

/// Returns the oldest version in `out`; 0: the gradient was discarded. `limit` covers all shards together. After an
/// error the push counts too, and the engine completes it.
Version Served::do_granted(Clock clock, const std::byte* gradient, std::byte* out, const Limit& limit) {
  const std::string number = std::to_string(clock);
  const Seconds end = engine_->transport().now() + limit.timeout;
  const auto wait_in_time = [&](const std::string& what, const std::function<bool()>& done, const Obstacle& obstacle) {
    const Seconds left = limit.timeout < 0 ? limit.timeout : std::max(end - engine_->transport().now(), 0.0);
    wait_for(what, done, {left, limit.interrupt}, obstacle);
  };
  Version oldest = std::numeric_limits<Version>::max();
  std::deque<GrantedWork> works = offered(clock, gradient, out);
  try {
    for (; !works.empty(); works.pop_front()) {
      GrantedWork& work = works.front();
      wait_in_time("push " + number, [&] { return work.is_granted(); }, {});
      oldest = std::min(oldest, work.version());
      if (!work.advance()) {
        wait_in_time("pull after push " + number, [&] { return work.advance(); }, work.obstacle());
      }
    }
  } catch (...) {
    leave_to_engine(std::move(works));
    throw;
  }
  return oldest;
}

std::deque<GrantedWork> Served::offered(Clock clock, const std::byte* gradient, std::byte* out) const {
  std::deque<GrantedWork> works;
  for (const std::size_t s : local_) {
    const std::size_t offset = layout_.first(s) * layout_.element_bytes();
    works.emplace_back(*shard_at(s), memory_, layout_, GrantedWork::Push{worker(), clock}, gradient + offset,
                       out + offset);
  }
  return works;
}

/// Other ranks wait for this work, so it is always completed; the caller gets its memory back at once.
void Served::leave_to_engine(std::deque<GrantedWork> works) {
  for (GrantedWork& work : works) work.leave();
  engine_->exclusively([&] {
    for (GrantedWork& work : works) left_.push_back(work);
    has_left_ = true;
    advance_left();
  });
  engine_->wake();
}

/// Under the progress lock.
bool Served::advance_left() {
  if (left_.empty()) return false;
  bool moved = false;
  const auto ended = std::erase_if(left_, [&moved](GrantedWork& work) {
    const std::size_t before = work.blocks_done();
    const bool has_ended = work.advance_left(kBlocksAtOnce);
    moved = moved || work.blocks_done() != before;
    return has_ended;
  });
  if (ended > 0 && left_.empty()) {
    has_left_ = false;
    notify(rank());
  }
  return moved || ended > 0;
}

}  // namespace pyc::server
