"""Mutants of the parameter server's policies; those of the service are in parameter_server_service.py."""

from __future__ import annotations

from mutant import Mutant

POLICIES = "csrc/services/parameter_server/policies"
ROWS = f"{POLICIES}/rows.h"
ELASTIC = f"{POLICIES}/elastic_bsp.cc"

HISTORIES = ("tests/plan/test_parameter_server.py",)
BARRIERS = ("tests/plan/test_parameter_server_elastic.py",)

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
        "ElasticBSP: the paper's rule chooses the barrier again",
        ELASTIC,
        "    if (predicts_each_push_ && is_predicted(table) && std",
        "    if (is_predicted(table) && std",
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
]
