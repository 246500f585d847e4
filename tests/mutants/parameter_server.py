"""Mutants of the parameter server: its policies, and the service around them."""

from __future__ import annotations

from mutant import Mutant

POLICIES = "csrc/services/parameter_server/policies"
ROWS = f"{POLICIES}/rows.h"
ELASTIC = f"{POLICIES}/elastic_bsp.cc"
SERVICE = "csrc/services/parameter_server"

HISTORIES = ("tests/plan/test_parameter_server.py",)
BARRIERS = ("tests/plan/test_parameter_server_elastic.py",)
BY_HAND = ("tests/unit/parameter_server/test_exact.py",)
SERVED = ("tests/unit/parameter_server/test_served.py",)
CALLS = ("tests/unit/parameter_server/test_server.py",)

MUTANTS = [
    # --- BSP
    Mutant(
        "BSP: a superstep that does not wait for the last worker",
        f"{POLICIES}/bsp.cc",
        "return row.gathered > 0; })) return {};",
        "return row.gathered > 0 || row.clock > 3; })) return {};",
        HISTORIES,
    ),
    Mutant(
        "BSP: the gradient of a missing worker is used in a later superstep",
        f"{POLICIES}/bsp.cc",
        "    if (version != table.server.version) return discarded();\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "BSP: a worker that leaves does not complete the superstep",
        f"{POLICIES}/bsp.cc",
        "    if (is_present(table.workers[worker])) return {};\n    return end_superstep(table, now);",
        "    if (worker + 1 > 0) return {};\n    return end_superstep(table, now);",
        HISTORIES,
    ),
    Mutant(
        "a mean over all workers, those without a gradient too",
        ROWS,
        "1 / (static_cast<double>(workers) *",
        "1 / (static_cast<double>(table.workers.size() + 0 * workers) *",
        HISTORIES,
    ),
    # --- Gradients that are used at once
    Mutant(
        "a gradient of before its worker's return is used",
        ROWS,
        "return version < table.workers[worker].oldest;",
        "return version + 1 < table.workers[worker].oldest;",
        HISTORIES,
    ),
    Mutant(
        "an update that takes all accumulators, not its own only",
        ROWS,
        "for (WorkerRow& row : table.workers) row.weight = 0;",
        "for (WorkerRow& row : table.workers) row.weight += 0;",
        HISTORIES,
    ),
    # --- SSP and DSSP
    Mutant(
        "SSP: one push too far ahead",
        f"{POLICIES}/ssp.cc",
        "return lead(table, worker) <= bound_;",
        "return lead(table, worker) <= bound_ + 1;",
        HISTORIES,
    ),
    Mutant(
        "SSP: a worker that comes back holds the others back",
        f"{POLICIES}/progress.h",
        "  if (least != kNoLimit) table.workers[worker].extra",
        "  if (least == kNoLimit) table.workers[worker].extra",
        HISTORIES,
    ),
    Mutant(
        "SSP: a worker that has left is waited for",
        f"{POLICIES}/progress.h",
        "    if (w != except && is_present(table.workers[w])) least",
        "    if (w != except) least",
        HISTORIES,
    ),
    Mutant(
        "DSSP: a grant that goes beyond the upper bound",
        f"{POLICIES}/dssp.cc",
        "std::min(high_ - ahead + 1, kMostGranted);",
        "std::min(high_ - ahead + 2, kMostGranted);",
        HISTORIES,
    ),
    Mutant(
        "DSSP: the grant after which a worker waits longest",
        f"{POLICIES}/dssp.cc",
        "      if (waiting < shortest) {",
        "      if (waiting > shortest || r == 0) {",
        HISTORIES,
    ),
    Mutant(
        "DSSP: who waits is not asked anew when the slowest has pushed",
        f"{POLICIES}/dssp.cc",
        "    if (was_slowest) grant_waiting(table, now);",
        "    if (was_slowest && now < 0) grant_waiting(table, now);",
        HISTORIES,
    ),
    # --- ElasticBSP
    Mutant(
        "ElasticBSP: a prediction after one push of each worker",
        ELASTIC,
        "constexpr Clock kMonitored = 2;",
        "constexpr Clock kMonitored = 1;",
        BARRIERS,
    ),
    Mutant(
        "ElasticBSP: a barrier one push later",
        ELASTIC,
        "static_cast<Clock>(*iteration++) + 1;",
        "static_cast<Clock>(*iteration++) + 2;",
        HISTORIES + BARRIERS,
    ),
    Mutant(
        "ElasticBSP: pushes predicted from now, not from the worker's last push",
        ELASTIC,
        "nanoseconds(row.last_push - now)",
        "nanoseconds(now - now)",
        BARRIERS,
    ),
    Mutant(
        "ElasticBSP: a worker that vanishes while the server monitors",
        ELASTIC,
        "    if (is_predicted(table)) return ImmediatePolicy::has_waiting(table);\n",
        "    if (table.server.phase < 2) return ImmediatePolicy::has_waiting(table);\n",
        HISTORIES,
    ),
    Mutant(
        "ElasticBSP: who has come back is not awaited at the barrier",
        ELASTIC,
        "row.limit = is_predicted(table) ? row.clock + 1 : kNoLimit;",
        "row.limit = is_predicted(table) ? 0 : kNoLimit;",
        HISTORIES,
    ),
    Mutant(
        "ElasticBSP: a barrier stays though an interval has changed",
        ELASTIC,
        "> kChange * row.predicted &&",
        "> 1e9 * row.predicted &&",
        BARRIERS,
    ),
    Mutant(
        "ElasticBSP: who is late is expected in the past",
        ELASTIC,
        "    last = std::max(last, -interval);",
        "    last = std::max(last, -1000 * interval);",
        BARRIERS,
    ),
    Mutant(
        "ElasticBSP: a new prediction goes beyond the first one",
        ELASTIC,
        "for (Clock left = row.extra - row.clock; left > 0; --left)",
        "for (Clock left = 20; left > 0; --left)",
        HISTORIES + BARRIERS,
    ),
    Mutant(
        "ElasticBSP: choosing anew however long it takes",
        ELASTIC,
        "kMostToSolveAgain = 1 << 14;",
        "kMostToSolveAgain = 1 << 24;",
        BARRIERS,
    ),
    Mutant(
        "waiting per time: the latest of equal windows",
        f"{POLICIES}/barrier_choice.cc",
        "ratio > least * kBetter) return;",
        "ratio > least / kBetter) return;",
        BARRIERS,
    ),
    # --- The optimal-time family
    Mutant(
        "Ringmaster: a delay of R",
        f"{POLICIES}/ringmaster.cc",
        "return delay < limit_ ?",
        "return delay <= limit_ ?",
        HISTORIES,
    ),
    Mutant(
        "Rennala: an older gradient is gathered",
        f"{POLICIES}/rennala.cc",
        "if (version != table.server.version) return discarded();",
        "if (version + 1 < table.server.version) return discarded();",
        HISTORIES,
    ),
    Mutant(
        "Ringleader: an early gradient goes into the table at hand",
        f"{POLICIES}/ringleader.cc",
        "      return {.next = true};",
        "      return {.next = false};",
        HISTORIES,
    ),
    Mutant(
        "Ringleader: a second update by the same worker in a round",
        f"{POLICIES}/ringleader.cc",
        "    if (is_second_phase(table)) {\n      row.extra = 0;\n",
        "    if (is_second_phase(table)) {\n      row.extra = row.clock % 2;\n",
        HISTORIES,
    ),
    Mutant(
        "Ringleader: an old gradient of a worker that comes back",
        f"{POLICIES}/ringleader.cc",
        "    if (is_from_before_return(table, worker, version)) return discarded();\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "Rescaled: the slower, the less",
        f"{POLICIES}/rescaled.cc",
        "std::max(own.interval, kShortest) * known / sum;",
        "sum / known / std::max(own.interval, kShortest);",
        HISTORIES,
    ),
    Mutant(
        "MindFlayer: a gradient that comes after its time is used",
        f"{POLICIES}/mindflayer.cc",
        "is_in_time(row, worker);",
        "(is_in_time(row, worker) || row.clock > 2);",
        HISTORIES,
    ),
    Mutant(
        "MindFlayer: a trial too many",
        f"{POLICIES}/mindflayer.cc",
        "row.limit = row.clock + of(trials_, w);",
        "row.limit = row.clock + of(trials_, w) + 1;",
        HISTORIES,
    ),
    # --- Missing workers
    Mutant(
        "a worker is missing although it waits itself",
        f"{POLICIES}/policy.cc",
        "if (!is_present(row) || row.waits != 0 || !is_awaited(table, worker)) return",
        "if (!is_present(row)) return",
        HISTORIES,
    ),
    Mutant(
        "a worker is missing after less than a second",
        f"{POLICIES}/policy.cc",
        "constexpr Seconds kLeastPatience = 1;",
        "constexpr Seconds kLeastPatience = 0;",
        HISTORIES,
    ),
    Mutant(
        "a worker is missing after its own time, not after the longest",
        f"{POLICIES}/policy.cc",
        "longest = std::max(longest, row.interval);",
        "longest = longest == kUnknown ? row.interval : std::min(longest, row.interval);",
        HISTORIES,
    ),
    # --- The ledger
    Mutant(
        "a version is counted after its update",
        f"{SERVICE}/ledger.cc",
        "step.update = ++server_->version;",
        "step.update = server_->version++;",
        BY_HAND,
    ),
    Mutant(
        "a gradient in an accumulator is lost when its worker leaves",
        f"{SERVICE}/ledger.cc",
        "  change(worker, Presence::kLeft, now, decisions);",
        "  accounts_[worker].filled[0] = 0;\n  change(worker, Presence::kLeft, now, decisions);",
        BY_HAND,
    ),
    Mutant(
        "a discarded gradient comes into an accumulator",
        f"{SERVICE}/ledger.cc",
        "  if (!verdict.use) return;\n",
        "",
        CALLS,
    ),
    Mutant(
        "a second gradient takes the place of the first",
        f"{SERVICE}/ledger.cc",
        "step.adds = filled != 0;",
        "step.adds = false;",
        BY_HAND,
    ),
    Mutant(
        "a push without an effect counts as a gradient",
        f"{SERVICE}/ledger.cc",
        "    ++account.pushes;\n    if (!step.use) ++account.discarded;",
        "    if (!step.use) ++account.discarded;\n  }\n  ++account.pushes;\n  if (kind == Kind::kGradient) {",
        CALLS,
    ),
    Mutant(
        "a push is told of before its worker is let go",
        f"{SERVICE}/ledger.cc",
        "  follow(verdict, std::move(step), decisions);\n  row.waits = 1;",
        "  account.outcome = account.pending;\n  follow(verdict, std::move(step), decisions);\n  row.waits = 1;",
        CALLS,
    ),
    Mutant(
        "the second accumulator is forgotten when the round turns",
        f"{SERVICE}/ledger.cc",
        "std::exchange(accounts_[w].filled[1], 0);",
        "0 * std::exchange(accounts_[w].filled[1], 0);",
        BY_HAND,
    ),
    Mutant(
        "a gradient that its update keeps is used up",
        f"{SERVICE}/ledger.h",
        "if (!use || adds || next || keep) return false;",
        "if (!use || adds || next) return false;",
        BY_HAND,
    ),
    Mutant(
        "what is computed on weights pulled since the worker left is discarded",
        ROWS,
        "std::min(row.oldest, table.server.version)",
        "table.server.version",
        CALLS,
    ),
    # --- Servers
    Mutant(
        "an update is applied twice",
        f"{SERVICE}/executor.cc",
        "      shard_.update(block_, terms_, step.update);",
        "      for (int i = 0; i < 2; ++i) shard_.update(block_, terms_, step.update);",
        BY_HAND,
    ),
    Mutant(
        "a worker's own update is applied by the server as well",
        f"{SERVICE}/executor.cc",
        "  ring_(step.worker);\n  if (ticket_) ring_for_version();\n  ticket_.reset();",
        "  ring_(step.worker);\n  if (step.update == 2) return false;\n  ticket_.reset();",
        BY_HAND,
    ),
    Mutant(
        "servers count on a worker that does not wait any more",
        f"{SERVICE}/shard.h",
        "return slots_[worker].offer.compare_exchange_strong(offered, 0);",
        "return slots_[worker].offer.load() == offered;",
        SERVED,
    ),
    Mutant(
        "a gradient is lost whose worker does not wait for an answer",
        f"{SERVICE}/served_work.cc",
        "        fill_slot(s, gradient, clock);\n",
        "",
        SERVED,
    ),
    Mutant(
        "a slot is filled before the gradient in it is taken",
        f"{SERVICE}/served_worker.cc",
        "    return slot.taken.load(std::memory_order_acquire) == slot.full.load();",
        "    return slot.taken.load(std::memory_order_acquire) <= slot.full.load();",
        BY_HAND,
    ),
    Mutant(
        "a gradient on its way is overwritten by the next",
        f"{SERVICE}/served_worker.cc",
        "return open_gradients_.load() == 0 && std::all_of(",
        "return std::all_of(",
        BY_HAND,
    ),
    Mutant(
        "a slot is told to be free before its gradient is used",
        f"{SERVICE}/executor.cc",
        "  if (step.is_used_up()) return true;\n",
        "  if (step.is_used_up()) set_taken(step);\n  if (step.is_used_up()) return true;\n",
        BY_HAND,
    ),
    Mutant(
        "a pull that does not wait for the version of the own push",
        f"{SERVICE}/served_worker.cc",
        "if (pipeline.version() >= version && !ticket)",
        "if (!ticket)",
        BY_HAND,
    ),
    Mutant(
        "an answer to an earlier question is taken for one to this",
        f"{SERVICE}/served_worker.cc",
        "question.answered && question.version >= version && question.clock == reply",
        "question.answered && question.clock == reply",
        SERVED,
    ),
    Mutant(
        "a reader passes blocks that an update before it has not",
        f"{SERVICE}/served.cc",
        "    if (!pipeline.may_enter(*reader.ticket, reader.block)) return false;\n",
        "",
        SERVED,
    ),
    Mutant(
        "of a range of workers the last has no part in the update",
        f"{SERVICE}/served.cc",
        "w <= range.last; ++w)",
        "w < range.last + (range.first == range.last); ++w)",
        BY_HAND,
    ),
    # --- The end
    Mutant(
        "a push is sent after its rank has closed",
        f"{SERVICE}/served_worker.cc",
        "    check_open();\n    if (kind == Kind::kGradient) offer_staged(clock);",
        "    if (kind == Kind::kGradient) offer_staged(clock);",
        SERVED,
    ),
    Mutant(
        "a close that the coordinator does not hear of",
        f"{SERVICE}/served.cc",
        "    if (r != rank()) mailbox().send(r, messages::Closed{});",
        "    if (r != rank() && r != layout_.coordinator()) mailbox().send(r, messages::Closed{});",
        SERVED,
    ),
    Mutant(
        "a server ends before it has heard every goodbye",
        f"{SERVICE}/served.h",
        "return all_closed_ && open_ranks_ == 0 && is_idle();",
        "return all_closed_ && is_idle();",
        SERVED,
    ),
    Mutant(
        "a worker that waits for others says that a message is near",
        f"{SERVICE}/served.h",
        "bool busy() const override { return !is_idle() || is_push_near(); }",
        "bool busy() const override { return has_waiting(rank()) || !is_idle(); }",
        SERVED,
    ),
]
