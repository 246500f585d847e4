"""Mutants of memory on CUDA devices."""

from __future__ import annotations

from mutant import Mutant

ARENA = "csrc/memory/arena.cc"
EXECUTOR = "csrc/memory/cuda/cuda_executor.cc"
KERNELS = "csrc/memory/cuda/kernels.cuh"

RANKS = ("tests/unit/cuda/test_arena.py",)
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
        "  in_->load(shape_.elements, snapshot(slot_), values, shape_.count);\n"
        "  in_->record(*deposited_);\n"
        "  producer.wait(*deposited_);\n",
        "  in_->load(shape_.elements, snapshot(slot_), values, shape_.count);\n  in_->record(*deposited_);\n",
        RANKS,
    ),
    Mutant(
        "an event recorded before the work",
        ARENA,
        "  in_->load(shape_.elements, snapshot(slot_), values, shape_.count);\n  in_->record(*deposited_);\n",
        "  in_->record(*deposited_);\n  in_->load(shape_.elements, snapshot(slot_), values, shape_.count);\n",
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
    # --- what is reduced
    Mutant(
        "a fold in the order of arrival",
        ARENA,
        "  std::sort(contributors.begin(), contributors.end());",
        "  ",
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
        "an IPC handle closed early",
        ARENA,
        "if (!ending_.empty() && reduced_->reached()) ending_.clear();",
        "ending_.clear();",
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
