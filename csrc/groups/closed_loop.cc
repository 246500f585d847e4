#include "groups/closed_loop.h"

#include <algorithm>
#include <vector>

#include "core/splitmix.h"

namespace pyc {
namespace {

class ClosedLoop {
 public:
  explicit ClosedLoop(GroupGenerator& generator)
      : generator_(generator), computing_(generator.size()), grant_(static_cast<std::size_t>(generator.size())) {}

  void ask(std::size_t index) {
    const Rank worker = computing_.members()[index];
    computing_.erase(worker);
    if (generator_.is_locked(worker)) ready_.push_back(of(worker));  // it may be the last missing member
    generator_.request(worker, started_);
    take_grants();
    while (!ready_.empty()) {
      const Grant next = ready_.back();
      ready_.pop_back();
      perform(next);
    }
  }

  std::size_t computing() const { return computing_.members().size(); }
  std::uint64_t performed() const { return performed_; }

 private:
  Grant& of(Rank worker) { return grant_[static_cast<std::size_t>(worker)]; }

  void take_grants() {
    for (const Grant& grant : started_) {
      for (const Rank r : grant.members) of(r) = grant;
      ready_.push_back(grant);
    }
    started_.clear();
  }

  void perform(const Grant grant) {
    const auto is_here = [&](Rank r) { return generator_.is_asking(r) && of(r).sequence == grant.sequence; };
    if (!generator_.is_locked(grant.members.front()) || !std::ranges::all_of(grant.members, is_here)) return;
    ++performed_;
    const std::vector<Rank>& members = copy(grant.members);
    for (const Rank r : members) {
      generator_.acknowledge(r, grant.sequence, started_);
      if (!generator_.is_asking(r)) computing_.insert(r);
    }
    take_grants();
  }

  const std::vector<Rank>& copy(std::span<const Rank> members) {
    members_.assign(members.begin(), members.end());
    return members_;
  }

  GroupGenerator& generator_;
  RankList computing_;
  std::vector<Grant> grant_;  // by worker: the newest grant
  std::vector<Grant> ready_;  // started, perhaps with all members present
  std::vector<Grant> started_;
  std::vector<Rank> members_;
  std::uint64_t performed_ = 0;
};

}  // namespace

std::uint64_t run_closed_loop(GroupGenerator& generator, std::uint64_t requests, std::uint64_t seed) {
  ClosedLoop loop(generator);
  SplitMix random(seed);
  for (std::uint64_t i = 0; i < requests; ++i) loop.ask(random.below(loop.computing()));
  return loop.performed();
}

}  // namespace pyc
