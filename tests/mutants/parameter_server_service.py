"""Mutants of the parameter server's service: work in shared memory, the ledger, servers as ranks."""

from __future__ import annotations

from mutant import Mutant

SERVICE = "csrc/services/parameter_server"
ROWS = f"{SERVICE}/policies/rows.h"

IN_ORDER = ("tests/unit/parameter_server/test_in_order.py",)
BY_HAND = ("tests/unit/parameter_server/test_exact.py",)
SERVED = ("tests/unit/parameter_server/test_served.py",)
GRANTED = ("tests/unit/parameter_server/test_granted.py",)
CALLS = ("tests/unit/parameter_server/test_server.py",)

MUTANTS = [
    # --- Work in memory that ranks share
    Mutant(
        "what a rank leaves undone still reads the caller's gradient",
        "csrc/services/parameter_server/work.cc",
        "    use(shard_.keep(step_.worker, block_, gradient_));\n",
        "",
        IN_ORDER,
    ),
    Mutant(
        "what a rank leaves undone still writes the caller's weights",
        "csrc/services/parameter_server/work.cc",
        "  out_ = nullptr;\n",
        "",
        IN_ORDER,
    ),
    Mutant(
        "elastic averaging: what was given before the rank left is not kept for its pull",
        "csrc/services/parameter_server/work.cc",
        "is_elastic() && out_ != nullptr && b < block_;",
        "is_elastic() && out_ != nullptr && b < block_ * 0;",
        IN_ORDER,
    ),
    Mutant(
        "the engine does not do what a rank leaves undone",
        "csrc/services/parameter_server/direct.cc",
        "    if (!work.advance(kBlocksAtOnce)) return",
        "    if (!work.advance(0)) return",
        IN_ORDER,
    ),
    Mutant(
        "a decision for whose work there is no place",
        "csrc/services/parameter_server/direct.cc",
        "!turn.has_room(most_steps(layout_))",
        "!turn.has_room(0)",
        IN_ORDER,
    ),
    Mutant(
        "a reader that gives up keeps its place",
        "csrc/services/parameter_server/direct.cc",
        "    pipeline().passed_all(known(ticket));  // it reads no more\n",
        "",
        IN_ORDER,
    ),
    Mutant(
        "who has closed it is waited for",
        "csrc/services/parameter_server/direct.cc",
        "    take_out_closed(decisions);\n",
        "",
        IN_ORDER,
    ),
    Mutant(
        "who waits does not look for who is missing",
        "csrc/services/parameter_server/direct.cc",
        "  check_whole();\n  look();\n",
        "  check_whole();\n",
        IN_ORDER,
    ),
    Mutant(
        "a function is called while others update",
        "csrc/services/parameter_server/direct.cc",
        "(update_.function && !turn.is_clear())",
        "(update_.function && !turn.has_room(0))",
        IN_ORDER,
    ),
    Mutant(
        "work does not wait for the readers before it",
        "csrc/services/parameter_server/pipeline.cc",
        "const std::uint64_t first = std::max(ticket.previous, oldest);",
        "const std::uint64_t first = ticket.exclusive ? ticket.number : std::max(ticket.previous, oldest);",
        IN_ORDER,
    ),
    Mutant(
        "the end of a block is not updated in the pass that gives the weights",
        "csrc/services/parameter_server/update_rule.cc",
        "  one_by_one(done, count);\n",
        "",
        IN_ORDER,
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
        f"{SERVICE}/granted_work.cc",
        "  shard_->slot(push_.worker).full.store(push_.clock, std::memory_order_release);\n",
        "",
        SERVED,
    ),
    Mutant(
        "what a worker leaves of its granted work is not kept",
        f"{SERVICE}/granted_work.cc",
        "shard_->gather(b, slot, gradient_, false);\n  gradient_",
        "static_cast<void>(slot);\n  gradient_",
        GRANTED,
    ),
    Mutant(
        "what a worker leaves of its granted work still writes its weights",
        f"{SERVICE}/granted_work.cc",
        "  out_ = nullptr;\n",
        "",
        GRANTED,
    ),
    Mutant(
        "a worker pushes again while its granted work is left",
        f"{SERVICE}/served_worker.cc",
        "return !has_left_ && open_gradients_.load() == 0",
        "return open_gradients_.load() == 0",
        GRANTED,
    ),
    Mutant(
        "a rank ends before it has done what it has left",
        f"{SERVICE}/served.h",
        "left_.empty() && is_idle();",
        "is_idle();",
        GRANTED,
    ),
    Mutant(
        "work that is left while it is claimed is never taken up",
        f"{SERVICE}/granted_work.cc",
        "  if (is_granted()) return advance(most);\n",
        "  if (is_granted_) return advance(most);\n",
        GRANTED,
    ),
    Mutant(
        "work that is left while it is claimed is dropped",
        f"{SERVICE}/granted_work.cc",
        "return false;  // it is about to be granted",
        "return true;",
        GRANTED,
    ),
    Mutant(
        "a worker takes back work that is claimed",
        f"{SERVICE}/shard.h",
        "Clock offered = offer(clock, Offer::kMade);",
        "Clock offered = slots_[worker].offer.load();",
        GRANTED,
    ),
    Mutant(
        "a server claims work that its worker can still take back",
        f"{SERVICE}/shard.cc",
        "is_offered.compare_exchange_strong(offered, offer(clock, Offer::kClaimed));",
        "is_offered.compare_exchange_strong(offered, offered);",
        GRANTED,
    ),
    Mutant(
        "a server that gets no place forgets what it has claimed",
        f"{SERVICE}/executor.cc",
        "if (!claimed_) claimed_ = step.has_gradient()",
        "claimed_ = step.has_gradient()",
        GRANTED,
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
        "return all_closed_ && open_ranks_ == 0 && left_.empty() && is_idle();",
        "return all_closed_ && left_.empty() && is_idle();",
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
