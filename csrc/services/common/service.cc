#include "services/common/service.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "engine/stall_warning.h"
#include "services/common/mailbox.h"
#include "services/common/stall.h"

namespace pyc {
namespace {

/// Asks the receiver for its progress (Service::progress).
struct Inquiry {
  std::uint64_t question;
};
struct Answer {
  Report report;
};
using Messages = MailboxFrom<kFirstKindOfServices, Inquiry, Answer>;

/// Text such as "the update of iteration 5 of ranks 1, 3; a token for iteration 6 of rank 2".
std::string text_of(const std::vector<Awaited>& awaited) {
  struct Missing {
    const char* what;
    std::uint64_t number;
    std::set<Rank> ranks;
  };
  std::vector<Missing> all;
  for (const Awaited& a : awaited) {
    if (*a.what == '\0') continue;
    const auto same = std::find_if(all.begin(), all.end(),
                                   [&](const Missing& m) { return m.what == a.what && m.number == a.number; });
    (same == all.end() ? all.emplace_back(a.what, a.number) : *same).ranks.insert(a.rank);
  }
  std::string text;
  for (const Missing& m : all) {
    if (!text.empty()) text += "; ";
    for (const char* c = m.what; *c != '\0'; ++c) {
      text += *c == '#'   ? std::to_string(m.number)
              : *c == '@' ? list_ranks({m.ranks.begin(), m.ranks.end()})
                          : std::string(1, *c);
    }
  }
  return text;
}

}  // namespace

Service::Service(Engine& engine, const Nodes& nodes, std::string kind, std::string name)
    : engine_(&engine),
      nodes_(nodes),
      kind_(std::move(kind)),
      name_(std::move(name)),
      reports_(static_cast<std::size_t>(engine.size())),
      called_(engine.transport().now()) {}

// ------------------------------------------------------------------------------------------------ creation

std::size_t Service::head_bytes() const { return NodeRanks::bytes(nodes_.neighbours(rank()).size()); }

void Service::make(const std::shared_ptr<SharedMemory>& shared, const OnNode& on_node) {
  node_ = std::make_unique<NodeRanks>(shared->data(), nodes_, rank());
  add_memory(on_node.of_rank != 0 ? on_node.of_rank : on_node.bytes / nodes_.neighbours(rank()).size());
  on_node.make({shared, shared->data() + head_bytes()});
}

void Service::set_id(std::uint32_t id) {
  id_ = id;
  open();
}

// ------------------------------------------------------------------------------------------------ other ranks

void Service::on_message(Rank from, ConstBytes message) {
  if (!Messages::has(message)) return receive(from, message);
  const auto handlers = Handlers{
      [this](Rank by, const Inquiry& i) { Messages(*engine_, id_).send(by, Answer{report(i.question)}); },
      [this](Rank by, const Answer& answer) { reports_[static_cast<std::size_t>(by)] = answer.report; },
  };
  Messages::deliver(from, message, handlers);
}

Report Service::report(std::uint64_t question) const {
  if (const std::optional<Report> done = progress(question)) return *done;
  if (closed_) return {RankState::kLeft};
  return report_of_absent(*engine_, *this, rank(), called_.load());
}

std::vector<Rank> Service::on_other_nodes(const std::vector<Rank>& ranks) const {
  std::vector<Rank> others = ranks;
  std::erase_if(others, [this](Rank r) { return is_local(r); });
  return others;
}

std::vector<Rank> Service::dead_on_node() const { return engine_->failures().dead_if_gone(node_->gone()); }

void Service::check_alive() const {
  const std::vector<Rank> dead = dead_on_node();
  if (!dead.empty()) throw died("'" + name_ + "'", dead, "it is unusable now");
}

// ------------------------------------------------------------------------------------------------ closing

void Service::check_open() const {
  engine_->check();
  if (closed_) throw ClosedError("'" + name_ + "' is closed");
}

void Service::check_usable() {
  engine_->check();
  check_alive();
}

void Service::close() {
  engine_->check_process();
  engine_->exclusively([this] { leave(); });
  engine_->advance();
}

void Service::leave() {
  if (closed_.exchange(true)) return;
  engine_->recorder().left(id_);
  tell_closed();
}

// ------------------------------------------------------------------------------------------------ waiting

void Service::wait_for(const Call& call, Seconds timeout, const Engine::Interrupt& interrupt) {
  const auto done = [&] {
    if (closed_ && !call.after_close) throw ClosedError("'" + name_ + "' was closed meanwhile");
    return call.done();
  };
  note_call();
  naming_the_dead(
      [&] {
        if (done()) return;
        const InCall in_call(in_call_);
        const std::string recorded = text_of(call.awaited());
        const FlightRecorder::Waiting waiting(engine_->recorder(), id_, recorded.empty() ? call.what : recorded);
        const Seconds start = engine_->transport().now();
        const TimeSpent time_spent(*engine_, waited_);
        const auto wait = [&](Seconds limit) {
          return wait_while_alive(
              *engine_, done, limit, interrupt, [this] { check_alive(); },
              [&](Seconds longest) { return call.sleep ? call.sleep(longest) : sleep(call, done, longest); });
        };
        const auto why_not = [&] {
          const Seconds waited = engine_->transport().now() - start;
          return call.explain ? call.explain(waited) : explain(call, waited, done, interrupt);
        };
        if (wait_and_warn(*engine_, timeout, wait, [&] { return why_not() + call.advice; })) return;
        const std::string text = why_not();  // takes time, so the call may be complete by now
        if (!done())
          throw StallError(call.unusable_after ? text + " It is unusable now: abort() it on all ranks." : text);
      },
      [this] { check_alive(); });
}

bool Service::sleep_until_notified(Seconds limit, const std::function<bool()>& done) const {
  const std::uint32_t seen = node_->notified();
  if (!done()) node_->sleep(seen, limit);
  return true;
}

/// Sleeps only if all awaited ranks are on this node, because only these notify.
bool Service::sleep(const Call& call, const std::function<bool()>& done, Seconds limit) const {
  const std::uint32_t seen = node_->notified();
  if (done()) return true;
  const std::vector<Awaited> awaited = call.awaited();
  const bool all_notify = !awaited.empty() && std::all_of(awaited.begin(), awaited.end(),
                                                          [this](const Awaited& a) { return is_local(a.rank); });
  if (all_notify) node_->sleep(seen, limit);
  return all_notify;
}

/// Asks the awaited ranks. If several contributions of one kind are awaited from a rank, it asks for the greatest
/// number. Under the progress lock.
void Service::ask(const std::vector<Awaited>& awaited) {
  std::fill(reports_.begin(), reports_.end(), Report{RankState::kComplete});
  for (const Awaited& a : awaited) {
    const bool is_newest = std::none_of(awaited.begin(), awaited.end(), [&](const Awaited& other) {
      return other.rank == a.rank && other.what == a.what && other.number > a.number;
    });
    if (!is_newest) continue;
    Report& report = reports_[static_cast<std::size_t>(a.rank)];
    const ProcessState state = is_local(a.rank) && a.rank != rank() ? node_->state(a.rank) : ProcessState::kAlive;
    if (state == ProcessState::kStopped) {
      report = {RankState::kStopped};
    } else if (!a.known) {
      report = {};
      Messages(*engine_, id_).send(a.rank, Inquiry{a.question});
    } else {
      report = {state == ProcessState::kGone ? RankState::kGone : *a.known};
    }
  }
}

/// Asks the missing ranks, and returns the text of the StallError.
std::string Service::explain(const Call& call, Seconds waited, const std::function<bool()>& done,
                             const Engine::Interrupt& interrupt) {
  const std::vector<Awaited> awaited = call.find_awaited ? call.find_awaited() : call.awaited();
  const std::string missing = text_of(awaited);
  engine_->exclusively([&] { ask(awaited); });
  const auto reports = [this] { return engine_->exclusively([this] { return reports_; }); };
  const auto is_known = [&] {
    const std::vector<Report> all = reports();
    return std::none_of(awaited.begin(), awaited.end(), [&](const Awaited& a) {
      return !a.known && all[static_cast<std::size_t>(a.rank)].state == RankState::kSilent;
    });
  };
  engine_->wait([&] { return done() || is_known(); }, kAnswerTime, interrupt);
  return text_of_stall({.what = kind_ + " '" + name_ + "', " + call.what +
                                (missing.empty() ? std::string() : " (waits for " + missing + ")"),
                        .round = kNoRound,
                        .waited = waited,
                        .flush = false,
                        .reports = reports(),
                        .gave_up = engine_->gave_up(),
                        .name_of = [this](std::uint32_t id) { return engine_->name_of(id); },
                        .if_all_arrived = call.if_none_is_missing});
}

}  // namespace pyc
