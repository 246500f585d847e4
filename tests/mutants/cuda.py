"""Mutants of memory on CUDA devices."""

from __future__ import annotations

from mutant import Mutant

ARENA = "csrc/memory/arena.cc"
BOARD = "csrc/services/common/device_board.cc"
EXECUTOR = "csrc/memory/cuda/cuda_executor.cc"
KERNELS = "csrc/memory/cuda/kernels.cuh"

RANKS = ("tests/unit/cuda/test_device_board.py",)
CALLER = "csrc/services/common/device_caller.cc"
BUFFERS = "csrc/services/partial_allreduce/device_buffers.cc"
MEMORY = "csrc/memory/device_memory.cc"
HANDOVER = "csrc/services/partial_allreduce/device_handover.cc"
DEVICE_CALLS = "csrc/services/partial_allreduce/device_calls.cc"

ALLREDUCE = ("tests/mpi/test_device_allreduce.py",)
CONTRIBUTIONS = ("tests/mpi/test_device_contributions.py",)
DRIVER = ("tests/unit/cuda/test_driver.py",)
BITS = ("tests/unit/cuda/test_kernels.py",)

MUTANTS = [
    # --- order of streams
    Mutant(
        "a missing wait: values are read before the caller's stream has made them",
        ARENA,
        "  stream.wait(*called_);\n",
        "",
        RANKS,
    ),
    Mutant(
        "a missing wait: the caller reads a result that is not there",
        ARENA,
        "  consumer.wait(*given_);\n",
        "",
        RANKS,
    ),
    Mutant(
        "a buffer reused before its event: the caller writes into values that are still read",
        ARENA,
        "own(buffer), values, shape_.count);\n  in_->record(*deposited_);\n  producer.wait(*deposited_);\n",
        "own(buffer), values, shape_.count);\n  in_->record(*deposited_);\n",
        RANKS,
    ),
    Mutant(
        "an event recorded before the work",
        ARENA,
        "  in_->load(shape_.elements, own(buffer), values, shape_.count);\n  in_->record(*deposited_);\n",
        "  in_->record(*deposited_);\n  in_->load(shape_.elements, own(buffer), values, shape_.count);\n",
        RANKS,
    ),
    Mutant(
        "a copy on the wrong stream",
        ARENA,
        "  out_->store(shape_.elements, out,",
        "  in_->store(shape_.elements, out,",
        RANKS,
    ),
    Mutant(
        "work on the caller's stream instead of the library's",
        EXECUTOR,
        "kBlockThreads, 1, 1, 0, stream_,",
        "kBlockThreads, 1, 1, 0, nullptr,",
        RANKS,
    ),
    # --- the application's mistakes and captures
    Mutant(
        "a poll that breaks the application's capture of a CUDA graph",
        EXECUTOR,
        "    const BesideCaptures beside_captures(context_.driver());\n",
        "",
        DRIVER,
    ),
    Mutant(
        "work in the graph that the application captures",
        EXECUTOR,
        "    if (!owned_) check_not_captured();\n",
        "",
        DRIVER,
    ),
    Mutant(
        "a stream of another device is taken for a failure of the device",
        EXECUTOR,
        "    if (!owned_) check_callers(result);\n",
        "",
        DRIVER,
    ),
    Mutant(
        "kernels are loaded again by every collective",
        "csrc/memory/cuda/devices_in_use.cc",
        "  return executor = make(ordinal);\n",
        "  return make(ordinal);\n",
        ALLREDUCE,
    ),
    Mutant(
        "the end of a collective keeps Python from running, for which a stream waits",
        "csrc/bindings/device_allreduce.cc",
        "      const GilReleased released;\n      delete bound;\n",
        "      delete bound;\n",
        CONTRIBUTIONS,
    ),
    # --- order of ranks: a buffer becomes something else when the work on it is done
    Mutant(
        "a buffer reused before its event: contributions are free before they are folded",
        BOARD,
        "!folding_.empty() && arena_.folded()",
        "!folding_.empty()",
        RANKS,
    ),
    Mutant(
        "a buffer reused before its event: a result is free before it is copied out",
        BOARD,
        "!giving_.empty() && arena_.given()",
        "!giving_.empty()",
        RANKS,
    ),
    Mutant(
        "a contribution is taken before it is there",
        BOARD,
        "filling_ && arena_.deposited()",
        "filling_.has_value()",
        RANKS,
    ),
    Mutant(
        "a result of which not all parts are folded",
        BOARD,
        "if (++into.parts_folded < into.parts) return;",
        "if (++into.parts_folded > 1) return;",
        RANKS,
    ),
    Mutant(
        "a contribution that can be taken while more is added to it",
        BOARD,
        "      at(*place).use = BufferUse::kFilling;\n",
        "      if (at(*place).use == BufferUse::kFree) at(*place).use = BufferUse::kFilling;\n",
        RANKS,
    ),
    # --- what is reduced
    Mutant(
        "a fold in the order of arrival: one's own contribution first",
        BOARD,
        "part.inputs.push_back(*find(slot, BufferUse::kTaken, into.ticket));",
        "part.inputs.insert(slot == local_ ? part.inputs.begin() : part.inputs.end(),"
        " *find(slot, BufferUse::kTaken, into.ticket));",
        RANKS,
    ),
    Mutant(
        "a contribution that another round takes",
        BOARD,
        "one.ticket == kAnyRound || one.ticket == ticket;",
        "one.ticket <= ticket + 1000;",
        RANKS,
    ),
    Mutant(
        "late values that replace what they are to be added to",
        BOARD,
        "onto = place && late == Late::kAccumulate;",
        "onto = false;",
        RANKS,
    ),
    Mutant(
        "a superseded result is kept",
        BOARD,
        "  if (keep_ == Keep::kLatest) supersede();\n",
        "",
        RANKS,
    ),
    Mutant(
        "an average that is not divided",
        KERNELS,
        "  if (divisor == 1) return total;",
        "  if (divisor >= 1) return total;",
        BITS,
    ),
    Mutant(
        "the last elements are left out",
        KERNELS,
        "i = packs * lanes + thread; i < a.count",
        "i = packs * lanes + thread; i + 1 < a.count",
        BITS,
    ),
    Mutant(
        "operands that are not aligned are taken for aligned",
        KERNELS,
        "a.aligned != 0 ? a.count / lanes : 0",
        "(a.count + lanes - 1) / lanes",
        BITS,
    ),
    # --- handles and errors
    Mutant(
        "an IPC handle closed early: work on the mapping is under way",
        BOARD,
        "  if (!ends) return false;\n",
        "  static_cast<void>(ends);\n",
        RANKS,
    ),
    Mutant(
        "an arena freed early: others have it mapped",
        BOARD,
        "  detach();\n  return !seats_.is_mapped_by_others();\n",
        "  detach();\n  return true;\n",
        RANKS,
    ),
    Mutant(
        "an error swallowed: the others are not told",
        BOARD,
        "    note_failure(error.what());\n",
        "    static_cast<void>(error);\n",
        RANKS,
    ),
    Mutant(
        "an error swallowed: a poll that fails says that all is done",
        EXECUTOR,
        '    check(context_.driver(), result, "cuEventQuery");\n',
        "",
        (*RANKS, *DRIVER),
    ),
    Mutant(
        "a context that stays current",
        "csrc/memory/cuda/context.h",
        "      driver_.cuCtxPopCurrent_v2(&popped);\n",
        "      static_cast<void>(popped);\n",
        DRIVER,
    ),
    Mutant(
        "a module that is not unloaded when a kernel is missing",
        "csrc/memory/cuda/context.cc",
        "  } catch (...) {\n    driver_.cuModuleUnload(module_);\n",
        "  } catch (...) {\n",
        DRIVER,
    ),
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
        "  const bool handed_over = handover_ && advance_handover();\n",
        "  const bool handed_over = false;\n",
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
        "  work(*stream_);\n  finish();\n",
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
        BUFFERS,
        "  if (seats_.is_mapped_by_others()) return false;\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "an arena that is never freed",
        BUFFERS,
        "    seats_.end_mapping();\n",
        "",
        ALLREDUCE,
    ),
    Mutant(
        "an error swallowed: the others wait for a rank whose device has failed",
        "csrc/services/partial_allreduce/board.cc",
        "  shared_->failed.store(true, std::memory_order_release);\n",
        "",
        ALLREDUCE,
    ),
]
