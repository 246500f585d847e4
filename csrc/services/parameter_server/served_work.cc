// A push and a pull in one pass, where all servers share this worker's memory and each gradient is an update by itself:
// the server says when, and the worker does the work. To copy a gradient into its slot, and the weights out of the
// shard, would go through memory twice as often.
#include <algorithm>
#include <limits>
#include <utility>

#include "services/parameter_server/known.h"
#include "services/parameter_server/served.h"

namespace pyc::server {

bool Served::works_itself(Kind kind) const {
  return kind == Kind::kGradient && remote_.empty() && updates_by_each(options_.sync.kind);
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
  if (made < outcome().version) return fetch(out, limit);  // it was let go later, or has made nothing
  given_.store(made);
}

/// The oldest version that `out` then has; 0: the gradient was discarded. After an error the push is done as well.
Version Served::do_granted(Clock clock, const std::byte* gradient, std::byte* out, const Limit& limit) {
  Version oldest = std::numeric_limits<Version>::max();
  std::size_t s = 0;
  try {
    while (s < layout_.shards()) {
      const Shard& shard = *shard_at(s);
      wait_for("push " + std::to_string(clock), [&] { return shard.is_granted(worker(), clock); }, limit);
      oldest = std::min(oldest, work(s++, gradient, out));
    }
  } catch (...) {
    for (; s < layout_.shards(); ++s) {
      if (shard_at(s)->take_offer_back(worker(), clock)) {
        fill_slot(s, gradient, clock);
      } else {
        work(s, gradient, nullptr);
      }
    }
    throw;
  }
  return oldest;
}

/// To the end, whatever comes meanwhile: others work behind it. The version that it makes.
Version Served::work(std::size_t s, const std::byte* gradient, std::byte* out) {
  Shard& shard = *shard_at(s);
  const Shard::Work work = shard.work_of(worker());
  if (work.update == 0) return 0;
  const std::size_t offset = layout_.first(s) * layout_.element_bytes();
  const bool is_plain = work.weight == 1 && !layout_.elements().widened();
  const std::vector<Term> terms{{is_plain ? gradient + offset : shard.incoming(worker()), 1}};
  Pipeline& pipeline = shard.pipeline();
  std::size_t wanted = 0;
  const auto is_free = [&] { return pipeline.may_enter(work.ticket, wanted); };
  for (std::size_t b = 0; b < pipeline.blocks(); ++b) {
    if (b == 0 || b > wanted) {
      wanted = pipeline.end_of_stride(b);
      if (!is_free()) wait_in_work("push", is_free, {}, behind(pipeline, work.ticket, wanted));
    }
    if (!is_plain) weigh(shard, b, gradient + offset, work.weight);
    shard.update(b, terms, work.update, out == nullptr ? nullptr : out + offset);
    pipeline.passed(work.ticket, b);
  }
  return work.ticket.version;
}

/// In the slot: the server's thread may use what the shard has for sums.
void Served::weigh(Shard& shard, std::size_t block, const std::byte* gradient, double weight) {
  std::byte* const slot = shard.incoming(worker());
  shard.gather(block, slot, gradient, false);
  if (weight == 1) return;
  memory_.scale(layout_.elements().accumulator, slot + shard.first(block) * layout_.wide_bytes(), shard.length(block),
                weight);
}

}  // namespace pyc::server
