#include "services/partial_reduce/group_runs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "algorithms/registry.h"
#include "algorithms/staged_allreduce.h"
#include "core/checked.h"
#include "core/error.h"
#include "schedule/builder.h"
#include "services/common/tags.h"

namespace pyc {
namespace {

constexpr std::size_t kMostCached = 64;  // runs, of a few kilobytes each
constexpr std::size_t kAlignment = 64;

}  // namespace

bool GroupRuns::Kind::operator==(const Kind& other) const {
  return size == other.size && local == other.local && count == other.count && elements.type == other.elements.type &&
         op == other.op && algorithm == other.algorithm && piece == other.piece;
}

GroupRuns::GroupRuns(Engine& engine, Memory& memory, std::uint32_t collective)
    : engine_(engine), memory_(memory), collective_(collective) {}

GroupRuns::Kind GroupRuns::kind_of(std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
                                   std::size_t piece) const {
  const auto local = std::lower_bound(members.begin(), members.end(), engine_.rank()) - members.begin();
  return {.size = static_cast<Rank>(members.size()),
          .local = static_cast<Rank>(local),
          .count = data.length(),
          .elements = data.elements(),
          .op = data.op,
          .algorithm = algorithm,
          .piece = piece};
}

void GroupRuns::prepare(std::span<const Rank> members, const GroupData& data, const std::string& algorithm,
                        std::size_t piece) {
  if (running_) throw InternalError("a P-Reduce was prepared while another is under way");
  const Kind kind = kind_of(members, data, algorithm, piece);
  if (!is_prepared_ || !(current_->plan.kind == kind)) current_ = &cached(kind);
  const Plan& plan = current_->plan;
  // Partial sums are in the scratch memory, not in the values: a group with a rank that dies does not complete.
  const std::size_t own = piece > 0 ? 0 : data.length() * size_of(data.elements().accumulator);
  reserve_scratch(plan.scratch_bytes + own);
  work_ = piece > 0 ? data.values : scratch_.get() + plan.scratch_bytes;
  std::copy(members.begin(), members.end(), current_->peers.begin());
  data_ = data;
  is_prepared_ = true;
}

void GroupRuns::start(std::uint64_t number) {
  if (work_ != data_.values && data_.values != nullptr) load_values(memory_, data_, work_);

  Run& run = *current_->run;
  const Plan& plan = current_->plan;
  running_ = true;
  is_prepared_ = false;
  run.arm(number);
  for (std::size_t b = 0; b < plan.offsets.size(); ++b) run.bind(BufferId(b), scratch_.get() + plan.offsets[b]);
  run.bind(plan.data.buffer, work_);
  if (plan.staging) run.bind(plan.staging->buffer, staging_->of_run(0));
  const Presence own{.contributors = data_.values != nullptr ? 1U : 0U};
  run.presence().assign(plan.schedule.blocks_of(plan.data), own, {});
  run.fire(plan.release);
  run.pump();
}

bool GroupRuns::finish() {
  if (!running_ || !current_->run->retired()) return false;
  put_result();
  running_ = false;
  return true;
}

void GroupRuns::put_result() const {
  if (data_.values == nullptr || current_->plan.staging) return;
  if (data_.weight) {
    memory_.scale(data_.elements().accumulator, work_, data_.count, 1 / total_weight(data_, work_));
  }
  store_values(memory_, data_, work_, contributors());
}

void GroupRuns::on_copied(OpId op) {
  current_->run->on_copied(op);
  current_->run->pump();
}

std::size_t GroupRuns::contributors() const {
  const Plan& plan = current_->plan;
  return current_->run->presence().at(plan.schedule.blocks_of(plan.data).first).contributors;
}

// ------------------------------------------------------------------------------------------------ kept runs

bool GroupRuns::has(const Kind& kind) const {
  return (built_ && built_->kind == kind) ||
         std::any_of(cache_.begin(), cache_.end(), [&](const Cached& c) { return c.plan.kind == kind; });
}

GroupRuns::Cached& GroupRuns::cached(const Kind& kind) {
  const auto found = std::find_if(cache_.begin(), cache_.end(), [&](const Cached& c) { return c.plan.kind == kind; });
  if (found != cache_.end()) {
    ++hits_;
    cache_.splice(cache_.begin(), cache_, found);
    return cache_.front();
  }
  ++misses_;
  std::list<Cached> made;  // its final node: the run refers to it
  const bool is_built = built_ && built_->kind == kind;
  made.push_back(
      {is_built ? std::move(*built_) : build(kind), std::vector<Rank>(static_cast<std::size_t>(kind.size)), nullptr});
  built_.reset();
  std::uint32_t serial = 0;
  if (cache_.size() == kMostCached) {  // nothing of it is in flight, so its number may be used again
    serial = cache_.back().run->serial();
    cache_.pop_back();
  } else {
    serial = engine_.reserve_run();
  }
  made.front().run = make_run(made.front(), serial);
  engine_.set_run(*made.front().run);
  cache_.splice(cache_.begin(), made);
  return cache_.front();
}

std::unique_ptr<Run> GroupRuns::make_run(const Cached& of, std::uint32_t serial) {
  const Kind& kind = of.plan.kind;
  const RunContext context{.schedule = of.plan.schedule,
                           .peers = of.peers,
                           .members = kind.size,
                           .memory = memory_,
                           .transport = engine_.transport(),
                           .open_transfers = engine_.open_transfers(),
                           .elements = kind.elements,
                           .op = kind.op,
                           .element_bytes = kind.count == 0 ? 0 : size_of(kind.elements.accumulator),
                           .collective = collective_,
                           .track_members = false,
                           .trace = engine_.trace(),
                           .elsewhere = of.plan.staging ? std::optional(of.plan.data.buffer) : std::nullopt,
                           .copier = this};
  std::vector<BufferId> bound;
  for (std::size_t b = 0; b < of.plan.offsets.size(); ++b) bound.push_back(BufferId(b));
  return std::make_unique<Run>(context, serial, std::move(bound), [](Run&, OpId) {});
}

GroupRuns::Plan GroupRuns::build(const Kind& kind) const {
  ScheduleBuilder s(kind.local, kind.size);
  // A P-Reduce of no elements still synchronizes: its plan has one element of no bytes.
  const Slice data = s.buffer(std::max<std::size_t>(kind.count, 1), "data");
  const OpId release = s.trigger("release");
  std::optional<Slice> staging;
  s.gate(release);
  if (kind.piece > 0) {
    staging = build_staged_allreduce(s, kind.algorithm, data, kind.piece).staging;
  } else {
    find_allreduce(kind.algorithm).build(s, {data, data});
  }
  s.ungate();
  Schedule schedule = std::move(s).build();
  check_tags(schedule, kind.algorithm, engine_.transport().max_tag());
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
  for (const Schedule::Buffer& buffer : schedule.buffers()) {
    const std::size_t length = buffer.count * size_of(kind.elements.accumulator);
    const auto id = BufferId(offsets.size());
    offsets.push_back(bytes);
    if (id == data.buffer || (staging && id == staging->buffer)) continue;
    bytes += round_up(length, kAlignment);
  }
  offsets[index(data.buffer)] = bytes;  // last, because a staged run has none
  return {kind, std::move(schedule), data, staging, release, std::move(offsets), bytes};
}

void GroupRuns::check(const std::vector<std::string>& algorithms, const GroupData& data, std::size_t piece) const {
  std::set<std::string> checked;
  for (std::size_t size = algorithms.size(); size-- > 2;) {
    if (!checked.insert(algorithms[size]).second) continue;  // smaller groups do not need more tags
    for (const std::size_t local : {std::size_t{0}, size - 1}) {
      build({.size = static_cast<Rank>(size),
             .local = static_cast<Rank>(local),
             .count = data.length(),
             .elements = data.elements(),
             .op = data.op,
             .algorithm = algorithms[size],
             .piece = piece});
    }
  }
}

void GroupRuns::reserve_scratch(std::size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  scratch_.reset();
  scratch_bytes_ = 0;  // if the allocation throws
  scratch_ = memory_.allocate(bytes);
  scratch_bytes_ = bytes;
}

}  // namespace pyc
