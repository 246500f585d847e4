#include "services/common/communicators.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "core/error.h"
#include "services/common/node_memory.h"

namespace pyc {
namespace {

constexpr Seconds kLongestJoin = 120;  // a library that has lost a rank waits for it for ever

/// What a rank says of its device, a line each.
struct Facts {
  std::string device;
  std::string reason;  // there is no library
  std::string version;
  std::string why_not_shared;

  std::string text() const { return device + "\n" + reason + "\n" + version + "\n" + why_not_shared; }
  static Facts of(const std::string& text) {
    std::istringstream lines(text);
    Facts facts;
    for (std::string* const line : {&facts.device, &facts.reason, &facts.version, &facts.why_not_shared}) {
      std::getline(lines, *line);
    }
    return facts;
  }
};

/// Without ends of lines.
std::string in_a_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Facts facts_of(Engine& engine, Executor& executor) {
  Facts facts;
  facts.device = executor.device_id();
  const CommunicatorFinding finding = executor.communicators();
  facts.reason = in_a_line(finding.reason);
  if (engine.progress() == Progress::kCaller) facts.reason = "progress='caller': devices would wait for its next call";
  if (finding.library == nullptr) return facts;
  facts.version = finding.library->version();
  facts.why_not_shared = finding.library->why_not_shared();
  return facts;
}

std::string why_not(const std::vector<Facts>& all) {
  std::map<std::string, std::size_t> first_on;  // by device: a rank
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    const Facts& facts = all[rank];
    if (!facts.reason.empty()) return who + ": " + facts.reason;
    if (facts.version != all[0].version) {
      return "rank 0 has NCCL " + all[0].version + ", " + who + " " + facts.version;
    }
    const auto [first, is_new] = first_on.try_emplace(facts.device, rank);
    if (is_new) continue;
    const std::string& refusal = all[first->second].why_not_shared;
    const std::string& why = refusal.empty() ? facts.why_not_shared : refusal;
    if (!why.empty()) return "ranks " + std::to_string(first->second) + " and " + std::to_string(rank) + ": " + why;
  }
  return {};
}

}  // namespace

std::string why_no_communicator(Engine& engine, const std::function<std::shared_ptr<Executor>()>& open, Seconds timeout,
                                const Engine::Interrupt& interrupt) {
  const std::string what = "the devices of all ranks";
  std::string own;
  attempt_together(engine, what, [&] { own = facts_of(engine, *open()).text(); }, timeout, interrupt);
  const Engine::Texts texts = engine.compare(own, what, timeout, interrupt);
  std::vector<Facts> all;
  for (Rank rank = 0; rank < engine.size(); ++rank) {
    all.push_back(Facts::of(texts ? (*texts)[static_cast<std::size_t>(rank)] : own));
  }
  return why_not(all);
}

std::unique_ptr<Communicator> join_all(Engine& engine, Executor& executor, const std::string& what, Seconds timeout,
                                       const Engine::Interrupt& interrupt) {
  CommunicatorLibrary* library = nullptr;
  std::string id;
  const auto name = [&] {
    const CommunicatorFinding finding = executor.communicators();
    library = finding.library;
    if (library == nullptr) throw std::runtime_error(finding.reason);
    if (engine.rank() != 0) return;
    const CommunicatorId made = library->new_id();
    id.assign(made.begin(), made.end());
  };
  attempt_together(engine, what, name, timeout, interrupt);
  std::vector<Rank> ranks(static_cast<std::size_t>(engine.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  id = engine.hand_down(id, ranks, what, timeout, interrupt);
  CommunicatorId agreed{};
  std::copy(id.begin(), id.end(), agreed.begin());
  std::unique_ptr<Communicator> joined;
  const auto begin = [&] { joined = library->join(agreed, ranks.size(), static_cast<std::size_t>(engine.rank())); };
  attempt_together(engine, what, begin, timeout, interrupt);
  const Seconds limit = timeout < 0 ? kLongestJoin : std::min(timeout, kLongestJoin);
  std::optional<std::string> failure;
  const auto is_over = [&] {
    try {
      return joined->is_settled();
    } catch (const DeviceError& error) {
      failure = error.what();
      return true;
    }
  };
  const bool in_time = engine.wait(is_over, limit, interrupt);
  const auto conclude = [&] {
    if (failure) throw DeviceError(*failure);
    if (!in_time) throw StallError("NCCL has not joined all ranks after " + in_seconds(limit));
  };
  attempt_together(engine, what, conclude, timeout, interrupt);
  return joined;
}

}  // namespace pyc
