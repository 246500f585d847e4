"""Mutants of collectives of arrays on CUDA devices."""

from __future__ import annotations

from mutant import Mutant

RANKS = ("tests/unit/cuda/test_group_board_on_a_device.py",)
CALLER = "csrc/services/common/device_caller.cc"
SEATS = "csrc/services/common/arena_seats.h"
MEMORY = "csrc/memory/device_memory.cc"
MODELS = "csrc/services/neighbor_averaging/device_models.cc"
HANDOVER = "csrc/services/partial_allreduce/device_handover.cc"
DEVICE_CALLS = "csrc/services/partial_allreduce/device_calls.cc"
STAGING = "csrc/services/common/staging.cc"
LEADER = "csrc/services/partial_allreduce/leader_on_devices.cc"
SLOTS = "csrc/services/partial_reduce/device_slots.cc"
STAGED = "csrc/services/partial_reduce/staged_runs.cc"
GROUPS = ("tests/mpi/test_device_groups.py",)
NAMED_GROUPS = ("tests/mpi/test_device_named_groups.py",)
STAGED_GROUPS = ("tests/unit/cuda/test_staged_groups.py",)
ALLREDUCE = ("tests/mpi/test_device_allreduce.py",)
NODES = ("tests/mpi/test_staged_allreduce.py",)
CONTRIBUTIONS = ("tests/mpi/test_device_contributions.py",)
PAIRWISE = ("tests/mpi/test_device_pairwise.py",)
SEATS_OF_PROCESSES = ("tests/unit/cuda/test_arena_seats.py",)

MUTANTS = [
    # --- partial allreduce
    Mutant(
        "a missing wait: values are copied before the caller's stream has made them",
        HANDOVER,
        "  for (std::size_t i = 0; i < producers.size(); ++i) stream_->wait(*called_.at(i));\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "a missing wait: the caller's stream overwrites values that are being copied",
        HANDOVER,
        "  for (const std::unique_ptr<Stream>& producer : producers) producer->wait(*there_);\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "a contribution is handed over before it is there",
        DEVICE_CALLS,
        "    if (!handover_->is_there()) return false;\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "only calls of the application hand over",
        "csrc/services/partial_allreduce/partial_allreduce.cc",
        "  bool moved = handover_ && advance_handover();\n",
        "  bool moved = false;\n",
        CONTRIBUTIONS,
    ),
    Mutant(
        "a late contribution that the engine hands over changes the result",
        "csrc/services/partial_allreduce/partial_allreduce.cc",
        " && taker == Taker::kAtOnce;\n",
        ";\n",
        CONTRIBUTIONS,
    ),
    Mutant(
        "a flush does not wait for what its stream makes",
        "csrc/bindings/bound_allreduce.cc",
        "  finish_handing_over(limit);\n",
        "",
        CONTRIBUTIONS,
    ),
    Mutant(
        "a missing wait: a result is overwritten while the caller's stream reads it",
        CALLER,
        "    out_->wait(*called_);\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "a missing wait: the caller's stream reads a result that is not there yet",
        CALLER,
        "  if (consumer != nullptr) consumer->wait(*given_);\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "others are told of work that is not done",
        MEMORY,
        "  work(*stream_);\n  finish(*stream_, *done_);\n",
        "  work(*stream_);\n",
        ALLREDUCE,
    ),
    Mutant(
        "an average of missed rounds that is not divided",
        MEMORY,
        "      terms[1] = quotient;\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "a place in another rank's arena",
        MEMORY,
        "  return arena + offset % arena_bytes_;\n",
        "  return (offset % arena_bytes_ == 0 ? arena_.get() : arena) + offset % arena_bytes_;\n",
        ALLREDUCE,
    ),
    Mutant(
        "an arena freed early: another rank has it mapped",
        SEATS,
        "    if (is_mapped_by_others()) return false;\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "an arena that is never freed",
        SEATS,
        "      end_mapping();\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "an arena that is never freed, as a rank that has died had it mapped",
        "csrc/services/common/arena_seats.cc",
        "    if (state_of(seat(rank).process) != ProcessState::kGone) return true;\n",
        "    return true;\n",
        SEATS_OF_PROCESSES,
    ),
    Mutant(
        "an error swallowed: the others wait for a rank whose device has failed",
        "csrc/services/partial_allreduce/board.cc",
        "  shared_->failed.store(true, std::memory_order_release);\n",
        "",
        ALLREDUCE,
    ),
    # --- partial allreduce between nodes
    Mutant(
        "a message sent before its data has come from the device",
        STAGING,
        "!is_done(lane.copies[lane.first])",
        "(&lane == &to_device_ && !is_done(lane.copies[lane.first]))",
        NODES,
    ),
    Mutant(
        "a round completed before its result is back on the device",
        STAGING,
        "!is_done(lane.copies[lane.first])",
        "(&lane == &to_host_ && !is_done(lane.copies[lane.first]))",
        NODES,
    ),
    Mutant(
        "an error swallowed: a copy that failed counts as done",
        "csrc/services/common/staging.h",
        "      if (!error_) error_ = std::current_exception();\n",
        "",
        NODES,
    ),
    Mutant(
        "data that another node has lost is used",
        "csrc/engine/run.cc",
        "  if (wire.failed != 0) failed_ = true;\n",
        "",
        ("tests/unit/cuda/test_staged_allreduce.py",),
    ),
    Mutant(
        "other nodes are not told why",
        LEADER,
        "      if (node != node_) messages_.send(nodes_.leader(node), message, sent);\n",
        "",
        NODES,
    ),
    # --- partial reduce
    Mutant(
        "others are told of work on a slot that is not done",
        "csrc/services/partial_reduce/device_slots.h",
        "bool is_done() override { return done_->reached(); }",
        "bool is_done() override { return true; }",
        RANKS,
    ),
    Mutant(
        "a fold that begins with the last member",
        SLOTS,
        "terms.push_back(slot(member) + offset);",
        "terms.insert(terms.begin(), slot(member) + offset);",
        RANKS,
    ),
    Mutant(
        "a sum by weights that is not divided by them",
        SLOTS,
        "  if (factor) scale(*stream_, partial.type, total, *factor, length);\n",
        "",
        RANKS,
    ),
    Mutant(
        "an IPC handle closed early: work on the mapping is under way",
        SLOTS,
        "has_stopped() &&",
        "",
        RANKS,
    ),
    Mutant(
        "a missing wait: weights are averaged before the caller's stream has made them",
        "csrc/bindings/device_partial_reduce.cc",
        "      if (!(**this).closed()) follow(streams, timeout);\n",
        "",
        GROUPS,
    ),
    Mutant(
        "a missing event wait: weights are copied to the host before they are widened",
        STAGED,
        "  staging_.follow(*done_);\n",
        "",
        STAGED_GROUPS,
    ),
    Mutant(
        "an error swallowed: preduce returns a sum of which another member has lost a part",
        "csrc/services/partial_reduce/explicit_groups.cc",
        "  return is_whole || learn_failure();\n",
        "  return true;\n",
        STAGED_GROUPS,
    ),
    Mutant(
        "an error swallowed: preduce returns a sum without a member whose device has failed before",
        "csrc/services/partial_reduce/explicit_groups.cc",
        " && (data_.count == 0 || runs_.contributors() == members_.size());\n",
        ";\n",
        STAGED_GROUPS,
    ),
    Mutant(
        "named groups take as much of the device for short values as the longest ones take of the host",
        "csrc/services/partial_reduce/staged_runs.h",
        "      work = std::max(work, other.work);\n",
        "      work = work + other.work > 0 ? staging : 0;\n",
        STAGED_GROUPS,
    ),
    Mutant(
        "members of a named group wait until who does not come drives its engine",
        "csrc/services/partial_reduce/explicit_groups.cc",
        "  FailureReports::send(mailbox_, members, engine_->rank(), text);\n"
        "  handshake_.withdraw(Handshake::Reason::kGaveUp);\n",
        "  FailureReports::send(mailbox_, members, engine_->rank(), text);\n  must_withdraw_ = true;\n",
        STAGED_GROUPS,
    ),
    Mutant(
        "an error swallowed: members of a named group are not told why a rank does not come",
        "csrc/services/partial_reduce/explicit_groups.cc",
        "  FailureReports::send(mailbox_, members, engine_->rank(), text);\n",
        "",
        NAMED_GROUPS,
    ),
    Mutant(
        "a missing wait: a named group takes values before the caller's stream has made them",
        "csrc/bindings/partial_reduce.cc",
        "        return wait_for_streams(*engine_, *executor_, *callers_events_, streams, timeout);\n",
        "        return true;\n",
        NAMED_GROUPS,
    ),
    Mutant(
        "a missing wait: a call returns before the average is in its place",
        STAGED,
        "  if (!(has_device_ ? done_->reached() : has_stopped())) return false;\n",
        "  if (!has_device_ && !has_stopped()) return false;\n",
        GROUPS,
    ),
    Mutant(
        "an error swallowed: a group goes on with weights that have not come to the host",
        STAGED,
        "    if (staging_.error()) runs.fail();\n",
        "",
        STAGED_GROUPS,
    ),
    Mutant(
        "an error swallowed: a call returns a sum of which another member has lost a part",
        "csrc/services/partial_reduce/partial_reduce.cc",
        "  return device_->finish(*runs_) && (failure_ || !runs_->failed());",
        "  return device_->finish(*runs_);",
        STAGED_GROUPS,
    ),
    Mutant(
        "a missing wait: the application overwrites its final weights while they are copied",
        "csrc/services/partial_reduce/group_device.cc",
        "  pyc::finish(*stream_, *kept_);\n",
        "",
        GROUPS,
    ),
    Mutant(
        "an error swallowed: the others wait for a rank whose device has failed",
        "csrc/services/partial_reduce/partial_reduce.cc",
        "  if (!failure_ && !has_performed_all()) source_->report_failure(error.what());\n",
        "",
        GROUPS,
    ),
    # --- pairwise averaging
    Mutant(
        "a lock given up while the device still works",
        MODELS,
        "    pyc::finish(*lane_.stream, *lane_.done);\n",
        "",
        PAIRWISE,
    ),
    Mutant(
        "a missing wait: a model is read into what the caller's stream still writes to",
        "csrc/bindings/device_pairwise.cc",
        "    wait_for(streams);\n    collective().read(",
        "    collective().read(",
        PAIRWISE,
    ),
    Mutant(
        "a missing wait: a delta is added before the caller's stream has made it",
        "csrc/bindings/device_pairwise.cc",
        "    wait_for(streams);\n    collective().apply(",
        "    collective().apply(",
        PAIRWISE,
    ),
    Mutant(
        "an average in one step, which rounds otherwise than the host's",
        MODELS,
        "  halve(s, half, range.count);\n  scale(s, half, acceleration_.kept, range.count);\n",
        "  scale(s, half, acceleration_.kept / 2, range.count);\n",
        PAIRWISE,
    ),
    Mutant(
        "an average on the device moves one model of two",
        MODELS,
        "both{own, others};",
        "both{own, own};",
        PAIRWISE,
    ),
    Mutant(
        "a step that is sent back as it came",
        MODELS,
        "  s.copy(values, step, range.count * width_);\n",
        "",
        PAIRWISE,
    ),
    Mutant(
        "numbers that follow the model begin with what was in memory",
        MODELS,
        "  clear();\n  seats_",
        "  seats_",
        PAIRWISE,
    ),
    Mutant(
        "an error swallowed: nobody is told that a device has failed",
        "csrc/services/neighbor_averaging/pairwise_failures.cc",
        "  if (!failed_ && !is_over()) mailbox_->broadcast(ModelLost{});\n",
        "",
        PAIRWISE,
    ),
]
