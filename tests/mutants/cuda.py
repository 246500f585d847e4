"""Mutants of memory on CUDA devices."""

from __future__ import annotations

from mutant import Mutant

EXECUTOR = "csrc/memory/cuda/cuda_executor.cc"
KERNELS = "csrc/memory/cuda/kernels.cuh"
RANKS = ("tests/unit/cuda/test_group_board_on_a_device.py",)
ALLREDUCE = ("tests/mpi/test_device_allreduce.py",)
CONTRIBUTIONS = ("tests/mpi/test_device_contributions.py",)
DRIVER = ("tests/unit/cuda/test_driver.py",)
BITS = ("tests/unit/cuda/test_kernels.py",)

MUTANTS = [
    # --- streams, what is reduced
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
        "csrc/bindings/gil.h",
        "    const GilReleased released;\n    delete owned;\n",
        "    delete owned;\n",
        CONTRIBUTIONS,
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
