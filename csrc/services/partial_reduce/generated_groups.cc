#include "services/partial_reduce/generated_groups.h"

#include <algorithm>
#include <span>

#include "core/error.h"

namespace pyc {
namespace {

constexpr std::size_t kLongestExplanation = 2000;  // characters; with many workers it could be much longer

}  // namespace

GeneratedGroups::GeneratedGroups(Engine& engine, std::uint32_t collective, const GroupOptions& options, Rank server)
    : engine_(engine), mailbox_(engine, collective), server_rank_(server) {
  if (engine.rank() == server) server_ = std::make_unique<Server>(options);
}

// ------------------------------------------------------------------------------------------------ a worker

void GeneratedGroups::request(std::int64_t step, const std::vector<Rank>&) {
  mailbox_.send(server_rank_, Request{step});
}

const Turn* GeneratedGroups::next() const {
  const bool complete = granted_.size() > 1 || (granted_.size() == 1 && missing_ == 0);
  return complete ? &granted_.front() : nullptr;
}

void GeneratedGroups::performed() {
  mailbox_.send(server_rank_, Acknowledgement{granted_.front().sequence});
  granted_.pop_front();
}

void GeneratedGroups::leave() { mailbox_.broadcast(Leave{}); }

void GeneratedGroups::take_grant(const Granted& granted, std::span<const Rank> members) {
  if (missing_ == 0) {
    granted_.push_back({granted.sequence, {}, granted.newest_step, granted.conflicts, granted.answers != 0});
    missing_ = granted.members;
  }
  std::vector<Rank>& all = granted_.back().members;
  all.insert(all.end(), members.begin(), members.end());
  missing_ -= members.size();
}

void GeneratedGroups::inquire() {
  text_.clear();
  explained_ = false;
  mailbox_.send(server_rank_, Inquiry{});
}

void GeneratedGroups::take_explanation(std::span<const char> piece) {
  text_.append(piece.data(), piece.size());
  explained_ = piece.size() < mailbox::kLongestTail<Explanation>;
}

std::optional<std::string> GeneratedGroups::explanation() const {
  if (!explained_) return std::nullopt;
  std::string text = "the generator of rank " + std::to_string(server_rank_) + " says: ";
  return text + (text_.empty() ? "no group runs or waits" : text_);
}

std::string GeneratedGroups::silence() const {
  return "the generator of rank " + std::to_string(server_rank_) + " gives no answer (stopped or gone)";
}

// ------------------------------------------------------------------------------------------------ the generator

/// Runs `action(server, now)` for a worker's message, and sends the grants that follow.
template <class Action>
void GeneratedGroups::serve(Action action) {
  if (!server_) throw InternalError("a message for a group generator that is elsewhere");
  Server& s = *server_;
  s.started.clear();
  action(s, engine_.transport().now());
  for (const Grant& started : s.started) grant(started);
  if (s.has_announced_end || !s.generator.finished()) return;
  s.has_announced_end = true;
  mailbox_.broadcast(Finished{});
}

void GeneratedGroups::grant(const Grant& grant) {
  constexpr std::size_t kMost = mailbox::kLongestTail<Granted>;
  for (const Rank member : grant.members) {
    const Granted granted{.sequence = grant.sequence,
                          .newest_step = server_->newest_step,
                          .conflicts = grant.conflicts,
                          .members = static_cast<std::uint16_t>(grant.members.size()),
                          .answers = static_cast<std::uint16_t>(grant.answers(member) ? 1 : 0)};
    for (std::size_t first = 0; first < grant.members.size(); first += kMost) {
      mailbox_.send(member, granted, grant.members.subspan(first, std::min(kMost, grant.members.size() - first)));
    }
  }
}

/// Running and pending groups on one line, the worker's own first, because the end may be cut off.
void GeneratedGroups::explain(Rank worker) {
  constexpr std::size_t kMost = mailbox::kLongestTail<Explanation>;
  std::string text = server_->generator.describe(worker);
  if (text.size() > kLongestExplanation) text = text.substr(0, kLongestExplanation) + " ...";
  std::replace(text.begin(), text.end(), '\n', '|');
  for (std::size_t first = 0; first <= text.size(); first += kMost) {
    mailbox_.send(worker, Explanation{}, text.substr(first, kMost));
  }
}

// ------------------------------------------------------------------------------------------------ messages

void GeneratedGroups::deliver(Rank from, ConstBytes message) {
  const auto receive = Handlers{
      [this](Rank worker, const Request& request) {
        serve([&](Server& s, Seconds now) {
          s.newest_step = std::max(s.newest_step, request.step);
          s.generator.request(worker, s.started, now);
        });
      },
      [this](Rank worker, const Acknowledgement& of) {
        serve([&](Server& s, Seconds now) { s.generator.acknowledge(worker, of.sequence, s.started, now); });
      },
      [this](Rank worker, const Leave&) {
        left_.insert(worker);
        if (server_) serve([&](Server& s, Seconds) { s.generator.leave(worker); });
      },
      [this](Rank worker, const Inquiry&) { serve([&](Server&, Seconds) { explain(worker); }); },
      [this](Rank, const Granted& granted, std::span<const Rank> members) { take_grant(granted, members); },
      [this](Rank, const Finished&) { finished_ = true; },
      [this](Rank, const Explanation&, std::span<const char> piece) { take_explanation(piece); },
      [this](Rank rank, const DeviceFailed&, std::span<const char> piece) { failures_.take(rank, piece); },
  };
  Messages::deliver(from, message, receive);
}

}  // namespace pyc
