"""Whatever stands in `.grad` when `step()` is called is averaged, as in plain PyTorch, or `step()` raises."""

from __future__ import annotations

import itertools
import os

import pytest

torch = pytest.importorskip("torch")

from eager import eager, ranks  # noqa: E402
from gradient_programs import LAYOUTS, Board, Program, Synchronous  # noqa: E402
from gradient_ways import WAYS  # noqa: E402

import pycollectives as pc  # noqa: E402

STEPS = 3
KERNELS = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
POLICIES = [pc.Solo(), pc.Majority(seed=3), pc.Quorum(2)]
CASES = [
    *((pc.Full(), layout, kernel) for layout, kernel in itertools.product(LAYOUTS, KERNELS)),
    *zip(POLICIES, LAYOUTS, itertools.repeat("plain")),
]


def some_cases(number):
    """In CI a way has one layout with one kernel, and one other policy; nightly it has all cases."""
    if os.environ.get("NIGHTLY"):
        return CASES
    exact = len(LAYOUTS) * len(KERNELS)
    return [CASES[number % exact], CASES[exact + number % len(POLICIES)]]


def train(way, program):
    """Play steps; values and gradients after each, or the error."""
    seen = []
    for program.step in range(STEPS):
        way.run(program) if way.only in (None, program.rank) else program.backward()
        try:
            program.optimizer.step()
        except (RuntimeError, TypeError) as error:
            return str(error)
        seen.append([bits(tensor) for p in program.w for tensor in (p, p.grad)])
    return seen


def bits(tensor):
    """The values, so that all bits are compared."""
    return None if tensor is None else tensor.detach().clone().contiguous().view(torch.int32).tolist()


def averaged(comm, way, policy, layout, kernel, overlap):
    program = Program(
        comm.rank, layout, lambda sgd: eager(sgd, comm, policy, overlap=overlap, missed="sum"), **KERNELS[kernel]
    )
    outcome = train(way, program)
    if isinstance(outcome, str):
        program.optimizer.abort()
        return outcome, None
    program.optimizer.close()
    return outcome, [bits(p) for p in program.w]


def synchronous(way, layout, kernel):
    board = Board(2)

    def one_rank(comm):
        program = Program(comm.rank, layout, lambda sgd: Synchronous(sgd, comm.rank, board), **KERNELS[kernel])
        return train(way, program), [bits(p) for p in program.w]

    return ranks(2, one_rank)


@pytest.mark.parametrize("overlap", [True, False], ids=["overlap", "after"])
@pytest.mark.parametrize("name", WAYS)
def test_what_stands_in_grad_is_averaged_or_is_an_error(name, overlap):
    way = WAYS[name]
    error = way.overlapped if overlap else way.error
    cases = [case for case in some_cases(list(WAYS).index(name)) if case[0] == pc.Full() or not way.depends_on_averages]

    def program(comm):
        return [averaged(comm, way, *case, overlap) for case in cases]

    for (policy, layout, kernel), *of_ranks in zip(cases, *ranks(2, program), strict=True):
        where = f"{policy}, {layout}, {kernel}"
        if error is not None:
            for rank in range(2) if way.only is None else [way.only]:
                assert error in str(of_ranks[rank][0]), where
            continue
        for (steps, parameters), (expected_steps, expected) in zip(
            of_ranks, synchronous(way, layout, kernel), strict=True
        ):
            if policy == pc.Full():
                assert steps == expected_steps, where
            assert parameters == expected, where
