#include "c_api/contributor.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>

namespace pyc {
namespace {

struct All {
  std::mutex mutex;
  std::vector<const Contributor*> contributors;

  static All& instance() {
    static auto* const all = new All;  // never destroyed: Python may free objects at the end of the process
    return *all;
  }
};

/// Whether a rank can wait although all ranks made equally many calls: late calls do not arrive.
bool waits_for_arrivals(const Policy& policy, Rank size) {
  switch (policy.kind) {
    case Policy::Kind::kSolo:
    case Policy::Kind::kFull:
      return false;
    case Policy::Kind::kQuorum:
      return policy.count > 1 && policy.count < size;
    default:
      return policy.count < size;
  }
}

}  // namespace

Contributor::Contributor(const Engine& engine, const PartialAllreduce& collective)
    : engine_(engine), collective_(collective) {
  All& all = All::instance();
  const std::lock_guard lock(all.mutex);
  all.contributors.push_back(this);
}

Contributor::~Contributor() {
  All& all = All::instance();
  const std::lock_guard lock(all.mutex);
  std::erase(all.contributors, this);
}

void Contributor::check_flushed(const Engine& engine, const std::string& call) {
  All& all = All::instance();
  const std::lock_guard lock(all.mutex);
  for (const Contributor* const each : all.contributors) {
    const PartialAllreduce& collective = each->collective_;
    if (&each->engine_ != &engine || collective.closed() || !each->is_this_thread()) continue;
    if (!waits_for_arrivals(collective.options().policy, engine.size())) continue;
    throw std::runtime_error(call + ": flush first: ranks may still wait for this one in '" +
                             collective.options().name + "', while it would wait for them here");
  }
}

}  // namespace pyc
