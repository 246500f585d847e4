"""Mutants of Hop."""

from __future__ import annotations

from mutant import Mutant

SERVICE = "csrc/services/hop"
WORKER = f"{SERVICE}/worker.cc"
UPDATES = f"{SERVICE}/update_queue"
SLOT = f"{SERVICE}/update_slot.h"
MEMBER = f"{SERVICE}/member.cc"
EDGES = f"{SERVICE}/edges.cc"

HISTORIES = ("tests/plan/test_hop.py",)
RANKS = ("tests/unit/hop/test_hop.py", "tests/unit/hop/test_hop_errors.py")
QUEUES = ("tests/unit/hop/test_queues.py",)
SLOTS = ("tests/unit/hop/test_update_slot.py",)
UNDRIVEN = ("tests/unit/hop/test_hop_undriven.py",)
WAKES = ("tests/unit/hop/test_wakes.py",)
LIMITS = ("tests/launch/test_limits.py",)
GAPS = ("tests/unit/hop/test_gap_checks.py",)
MEMORY = ("tests/unit/hop/test_memory.py",)
TRACES = ("tests/unit/diagnostics/test_traces_of_waits.py",)

MUTANTS = [
    # --- tokens
    Mutant(
        "a token moved twice",
        WORKER,
        "links_.insert_tokens(j, ahead_, iteration_);",
        "links_.insert_tokens(j, ahead_ + 1, iteration_);",
        HISTORIES,
    ),
    Mutant(
        "a skip that forgets tokens: it gives one for all iterations",
        WORKER,
        "links_.insert_tokens(j, ahead_, iteration_);",
        "links_.insert_tokens(j, 1, iteration_);",
        HISTORIES,
    ),
    Mutant(
        "a skip that takes one token for all iterations",
        WORKER,
        "links_.remove_tokens(j, ahead_);",
        "links_.remove_tokens(j, 1);",
        HISTORIES,
    ),
    Mutant(
        "an iteration without a token",
        WORKER,
        "    if (stays(j) && links_.tokens(j) < ahead_) return false;\n",
        "",
        HISTORIES,
    ),
    # --- updates
    Mutant(
        "a sub-queue that is not rotated",
        f"{UPDATES}.h",
        "return static_cast<std::size_t>(iter % slots_);",
        "return static_cast<std::size_t>(std::min<Iteration>(iter, slots_ - 1));",
        HISTORIES,
    ),
    Mutant(
        "a sub-queue too few",
        f"{SERVICE}/options.h",
        "Iteration sub_queues() const { return max_ig + 1; }",
        "Iteration sub_queues() const { return max_ig; }",
        HISTORIES,
    ),
    Mutant(
        "a stale update taken: whatever is in the slot",
        SLOT,
        "    Tag expected = full(iter);\n",
        "    Tag expected = tag() & ~kClaimed;\n",
        HISTORIES,
    ),
    Mutant(
        "an update beyond the bound taken",
        WORKER,
        "    if (claim->iter >= oldest) {\n",
        "    if (claim->iter + 1 >= oldest) {\n",
        HISTORIES,
    ),
    Mutant(
        "equation 2's weights off by one iteration",
        WORKER,
        "static_cast<double>(claim->iter + s + 1)",
        "static_cast<double>(claim->iter + s + 2)",
        HISTORIES,
    ),
    Mutant(
        "an update lost: it is discarded before it is read",
        WORKER,
        "statistics_.stale += updates.discard_before(i, k);",
        "statistics_.stale += updates.discard_before(i, k + 2);",
        HISTORIES,
    ),
    Mutant(
        "an update lost on its way: what is accepted is not sent",
        EDGES,
        "    edge.accepted.pop_front();\n",
        "    edge.accepted.clear();\n",
        UNDRIVEN,
    ),
    Mutant(
        "an update reduced twice: it stays in the queue",
        WORKER,
        "    links_.updates().dequeue(claim);\n  }\n  statistics_.received",
        "    links_.updates().release(claim);\n  }\n  statistics_.received",
        HISTORIES,
    ),
    Mutant(
        "one backup worker too many",
        WORKER,
        "    if (!updates.has(i, k) && links_.left(in()[i]) > k) ++missing;\n  }\n  if (missing > backup())",
        "    if (!updates.has(i, k) && links_.left(in()[i]) > k) ++missing;\n  }\n  if (missing > backup() + 1)",
        HISTORIES,
    ),
    Mutant(
        "a staleness of one iteration more",
        WORKER,
        "const Iteration satisfactory = k < s ? 0 : oldest + 1;",
        "const Iteration satisfactory = k < s ? 0 : oldest;",
        HISTORIES,
    ),
    Mutant(
        "the copy of an update is overwritten while it is on its way",
        f"{SERVICE}/hop.h",
        "return edges_->can_hold(iter);",
        "return iter + 1 > 0;",
        HISTORIES + RANKS,
    ),
    Mutant(
        "a stale update is sent",
        f"{SERVICE}/options.h",
        "return of + staleness.value_or(0) < receiver;",
        "return of + staleness.value_or(0) + max_ig < receiver;",
        HISTORIES,
    ),
    # --- modes
    Mutant(
        "an acknowledgement is not waited for",
        WORKER,
        "      if (stays(j) && links_.reduced(j) < iteration_) return false;\n",
        "",
        HISTORIES + RANKS,
    ),
    Mutant(
        "a jump without new parameters",
        WORKER,
        "    reduce(nullptr);\n    ++statistics_.jumps;",
        "    ++statistics_.jumps;",
        HISTORIES,
    ),
    Mutant(
        "a jump beyond an out-neighbor",
        WORKER,
        "  const Iteration behind = fewest - options_.max_ig;\n",
        "  const Iteration behind = fewest;\n",
        HISTORIES,
    ),
    Mutant(
        "a delta that is added twice after a stall",
        WORKER,
        "  if (!receive(iteration_)) return false;\n  reduce(options_.serial",
        "  if (!receive(iteration_)) {\n    if (options_.serial) stage_ = Stage::kComputing;\n    return false;\n  }\n"
        "  reduce(options_.serial",
        RANKS,
    ),
    Mutant(
        "a jump that waits for ranks that wait for its tokens",
        WORKER,
        "std::min(longest, reached_by_senders() - iteration_)",
        "longest",
        HISTORIES,
    ),
    Mutant(
        "a step that has ended is done again",
        WORKER,
        "  if (stage_ == Stage::kBetween) return true;\n",
        "",
        HISTORIES,
    ),
    Mutant(
        "a jump that was given up goes further than the next call says",
        WORKER,
        "    ahead_ = std::max<Iteration>(std::min(ahead_, last - iteration_), 1);\n",
        "",
        UNDRIVEN,
    ),
    Mutant(
        "a stall names receivers that have the update",
        WORKER,
        "if (links_.is_sending(j, iteration_))",
        "if (!links_.can_enqueue(iteration_))",
        UNDRIVEN,
    ),
    # --- what is checked and seen
    Mutant(
        "gaps are not checked at run time",
        WORKER,
        "  if (options_.checks) check_gaps();\n",
        "",
        GAPS,
    ),
    Mutant(
        "a gap of one more than Table 1 has goes unnoticed",
        WORKER,
        "iteration_ <= theirs + bound) return;",
        "iteration_ <= theirs + bound + 1) return;",
        GAPS,
    ),
    Mutant(
        "gaps to out-neighbors are not checked under NOTIFY-ACK",
        WORKER,
        "options_.acks ? std::min<Iteration>(options_.max_ig, 2) : options_.max_ig",
        "options_.max_ig",
        GAPS,
    ),
    Mutant(
        "a sub-queue too many",
        f"{SERVICE}/options.h",
        "Iteration sub_queues() const { return max_ig + 1; }",
        "Iteration sub_queues() const { return max_ig + 2; }",
        MEMORY,
    ),
    Mutant(
        "a trace does not say what a call waits for",
        "csrc/diagnostics/flight_recorder.cc",
        "traced_(recorder.trace_ == nullptr ? std::string() : what)",
        "traced_()",
        TRACES,
    ),
    # --- ranks that leave
    Mutant(
        "a rank that has left is waited for",
        WORKER,
        "if (!updates.has(i, k) && links_.left(in()[i]) > k) ++missing;",
        "if (!updates.has(i, k)) ++missing;",
        RANKS,
    ),
    Mutant(
        "a sleeping rank is not woken by an update",
        MEMBER,
        "    queue.end_enqueue(sender, slot, iter);\n    return board_->ring(to);",
        "    return queue.end_enqueue(sender, slot, iter);",
        WAKES,
    ),
    Mutant(
        "a sleeping rank is not woken by a token",
        MEMBER,
        "  if (is_local(to)) return board_->ring(to);\n  if (has_left(to)) return;",
        "  if (is_local(to) || has_left(to)) return;",
        WAKES,
    ),
    Mutant(
        "a sleeping rank is not woken by an acknowledgement",
        f"{SERVICE}/hop.cc",
        "      board_->ring(j);\n",
        "",
        WAKES,
    ),
    Mutant(
        "a sleeping rank is not woken by one that leaves",
        MEMBER,
        "      board_->ring(r);\n",
        "",
        WAKES,
    ),
    # --- the queues by themselves
    Mutant(
        "a slot that the receiver empties is taken for one that it reads",
        SLOT,
        "    return is_empty(seen);  // or",
        "    return false;  // or",
        SLOTS,
    ),
    Mutant(
        "a slot that the receiver has begun to read is taken for one that it has emptied",
        SLOT,
        "    return is_empty(seen);  // or",
        "    return true;  // or",
        SLOTS,
    ),
    Mutant(
        "an update that the receiver reads is discarded",
        SLOT,
        "    return is_full(seen) && iter_of(seen) < iter",
        "    return !is_empty(seen) && iter_of(seen) < iter",
        SLOTS,
    ),
    Mutant(
        "an update is overwritten in a full queue",
        f"{UPDATES}.cc",
        "(UpdateSlot::is_full(found) && UpdateSlot::iter_of(found) < oldest);",
        "(UpdateSlot::is_full(found) || UpdateSlot::iter_of(found) < oldest);",
        QUEUES,
    ),
    Mutant(
        "what has been sent before a rank left is not waited for",
        f"{SERVICE}/update_queue_collective.cc",
        "  return !all_have_left || !engine_->exclusively([this] { return edges_->idle(); });\n",
        "  return !all_have_left;\n",
        QUEUES,
    ),
    Mutant(
        "what a dequeue that failed has read is lost",
        f"{SERVICE}/update_queue_collective.cc",
        "    for (const UpdateQueue::Claim& claim : claims) updates().release(claim);\n    throw;",
        "    throw;",
        LIMITS,
    ),
    Mutant(
        "one rank alone is told that it has no memory for copies",
        f"{SERVICE}/edges.cc",
        "  while (!receivers.empty() && copies_.size() < slots) "
        "copies_.push_back(memory.allocate(options.update_bytes()));\n"
        "}\n\nvoid HopEdges::open(std::uint32_t collective) {\n",
        "}\n\nvoid HopEdges::open(std::uint32_t collective) {\n"
        "  while (!giving_.empty() && copies_.size() < options_.sub_queues())\n"
        "    copies_.push_back(memory_.allocate(options_.update_bytes()));\n",
        LIMITS,
    ),
    Mutant(
        "an update that has become stale on its way is dequeued",
        f"{SERVICE}/update_queue_collective.cc",
        "return iter < oldest() || (",
        "return (",
        UNDRIVEN,
    ),
]
