"""Mutants of memory on CUDA devices."""

from __future__ import annotations

from mutant import Mutant

ARENA = "csrc/memory/arena.cc"
BOARD = "csrc/services/common/device_board.cc"
EXECUTOR = "csrc/memory/cuda/cuda_executor.cc"
KERNELS = "csrc/memory/cuda/kernels.cuh"

RANKS = ("tests/unit/cuda/test_device_board.py",)
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
        "  detach();\n  return holders() == 0;\n",
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
]
