"""Policies: what is refused, and what the engine is told."""

import dataclasses

import pytest

import pycollectives as pc
from pycollectives.policies import parse
from pycollectives.testing import run_ranks


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pc.Quorum(0), "expected k >= 1, got 0"),
        (lambda: pc.Quorum(-3), "expected k >= 1, got -3"),
        (lambda: pc.Quorum(2, grace=-0.5), "grace >= 0 seconds, got -0.5"),
        (lambda: pc.Quorum(2, grace=float("nan")), "got nan"),
        (lambda: pc.Quorum(2, grace="short"), "expected grace in seconds or 'auto', got 'short'"),
        (lambda: pc.Quorum(2, grace=float("inf")), "got inf"),
        (lambda: pc.policies.AnyOf(0), "expected m >= 1, got 0"),
        (lambda: pc.policies.AllOf(0), "expected m >= 1, got 0"),
        (lambda: pc.Majority(-1), "got -1"),
        (lambda: pc.Majority(2**64), f"got {2**64}"),
        (lambda: pc.policies.AllOf(1, seed=-1), "got -1"),
    ],
)
def test_values_out_of_range(make, message):
    with pytest.raises(ValueError, match=message.replace("*", r"\*")):
        make()


@pytest.mark.parametrize(
    "make", [lambda: pc.Quorum(2.5), lambda: pc.Quorum("2"), lambda: pc.Majority(None), lambda: pc.Quorum(2, [])]
)
def test_values_of_wrong_type(make):
    with pytest.raises(TypeError, match="expected"):
        make()


@pytest.mark.parametrize("policy", [pc.Quorum(5), pc.policies.AnyOf(5), pc.policies.AllOf(5)])
def test_more_ranks_than_there_are(policy):
    assert policy.for_size(5) == policy
    with pytest.raises(ValueError, match=r"expected 1 <= [km] <= 4, the number of ranks, got 5$"):
        policy.for_size(4)


def test_a_program_that_was_started_without_a_launcher_is_told_so():
    with pytest.raises(ValueError, match=r"got 2; this program runs as one process: start it with mpirun -n$"):
        pc.Quorum(2).for_size(1)


@pytest.mark.parametrize(("size", "k"), [(1, 1), (2, 1), (3, 2), (4, 2), (7, 4), (8, 4)])
def test_a_quorum_is_half_of_the_ranks_by_default(size, k):
    assert pc.Quorum(grace=0.5).for_size(size) == pc.Quorum(k, 0.5)
    with pytest.raises(ValueError, match="k depends on the number of ranks"):
        pc.Quorum().engine_arguments()


def test_a_policy_may_be_given_as_text():
    def program(comm):
        by_text, by_default = comm.partial_allreduce(count=1, dtype="f8", policy="quorum:2"), pc.Quorum()
        with pytest.raises(ValueError, match="policy 'quorum:x'"):
            comm.partial_allreduce(count=1, dtype="f8", policy="quorum:x")
        return by_text.policy, comm.partial_allreduce(count=1, dtype="f8", policy=by_default).policy

    assert run_ranks(3, program) == [(pc.Quorum(2), pc.Quorum(2))] * 3


@pytest.mark.parametrize("policy", [pc.Solo(), pc.Majority(), pc.Full()])
def test_other_policies_serve_any_size(policy):
    assert policy.for_size(1) == policy


@pytest.mark.parametrize(
    ("policy", "arguments"),
    [
        (pc.Solo(), {"policy": "solo"}),
        (pc.Majority(seed=7), {"policy": "majority", "seed": 7}),
        (pc.Quorum(3, grace=1), {"policy": "quorum", "policy_size": 3, "grace": 1.0}),
        (pc.Quorum(3, grace="auto"), {"policy": "quorum", "policy_size": 3, "grace": -1.0}),
        (pc.policies.AnyOf(2, seed=9), {"policy": "any_of", "policy_size": 2, "seed": 9}),
        (pc.policies.AllOf(4, seed=9), {"policy": "all_of", "policy_size": 4, "seed": 9}),
        (pc.Full(), {"policy": "full"}),
    ],
)
def test_what_the_engine_is_told(policy, arguments):
    assert policy.engine_arguments() == arguments


def test_default_seed_is_fixed():
    assert pc.Majority() == pc.Majority()
    assert pc.Majority() != pc.Majority(seed=1)


def test_policies_are_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        pc.Quorum(2).k = 3


def test_integers_of_numpy_give_the_same_text():
    numpy = pytest.importorskip("numpy")
    assert repr(pc.Quorum(numpy.int64(3))) == "Quorum(k=3, grace=0.0)"


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("solo", pc.Solo()),
        ("majority", pc.Majority(5)),
        ("quorum", pc.Quorum()),
        ("quorum:4", pc.Quorum(4)),
        (" quorum:4:0.25 ", pc.Quorum(4, 0.25)),
        ("quorum:4:auto", pc.Quorum(4, "auto")),
        ("any-of:2", pc.policies.AnyOf(2, 5)),
        ("all-of:2", pc.policies.AllOf(2, 5)),
        ("full", pc.Full()),
    ],
)
def test_parse(text, policy):
    assert parse(text, seed=5) == policy


@pytest.mark.parametrize("text", ["", "quorum:", "quorum:x", "quorum:0", "solo:1", "Majority"])
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="policy"):
        parse(text)


def test_a_fraction_is_no_number_of_ranks():
    with pytest.raises(
        ValueError, match=r"policy 'quorum:0\.5': expected a number of ranks after 'quorum', got '0\.5'"
    ):
        parse("quorum:0.5")
