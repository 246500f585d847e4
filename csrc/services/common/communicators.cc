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
  int version = 0;
  bool shares_devices = false;
  std::string device;
  std::string reason;  // there is no library

  std::string text() const {
    return std::to_string(version) + "\n" + (shares_devices ? "1" : "0") + "\n" + device + "\n" + reason;
  }
  static Facts of(const std::string& text) {
    std::istringstream lines(text);
    Facts facts;
    lines >> facts.version >> facts.shares_devices >> facts.device;
    lines.ignore();
    std::getline(lines, facts.reason, '\0');
    return facts;
  }
};

Facts facts_of(Engine& engine, Executor& executor) {
  if (engine.progress() == Progress::kCaller) {
    return {.device = executor.device_id(), .reason = "progress='caller': devices would wait for its next call"};
  }
  const CommunicatorFinding finding = executor.communicators();
  if (finding.library == nullptr) return {.device = executor.device_id(), .reason = finding.reason};
  return {.version = finding.library->version(),
          .shares_devices = finding.library->shares_devices(),
          .device = executor.device_id(),
          .reason = ""};
}

std::string text_of_version(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string why_not(const std::vector<Facts>& all) {
  std::map<std::string, std::size_t> first_on;  // by device: a rank
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    const Facts& facts = all[rank];
    if (!facts.reason.empty()) return who + ": " + facts.reason;
    if (facts.version != all[0].version) {
      return "rank 0 has NCCL " + text_of_version(all[0].version) + ", " + who + " " + text_of_version(facts.version);
    }
    const auto [first, is_new] = first_on.try_emplace(facts.device, rank);
    if (!is_new && !(facts.shares_devices && all[first->second].shares_devices)) {
      return "ranks " + std::to_string(first->second) + " and " + std::to_string(rank) +
             " are on one device, which NCCL takes from 2.30 on where NCCL_MULTI_RANK_GPU_ENABLE=1 is set; this is " +
             text_of_version(facts.version);
    }
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
