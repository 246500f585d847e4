"""Forecasts of all methods from step times, against values computed by hand, and the advice."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from pycollectives.__main__ import main
from pycollectives.simulation import workload
from pycollectives.simulation.advice import advice, forecasts

NEVER_WAIT = ("solo", "ad-psgd", "asp")


def by_method(work):
    return {each.method: each for each in forecasts(work)}


def one_slow(factor=4.0, ranks=8, steps=60):
    return workload.make("one-slow", ranks=ranks, calls=steps, work=0.1, skew=0.0, seed=1, factor=factor)


def test_equal_ranks():
    found = by_method(np.full((4, 20), 0.5))
    assert all(each.steps_per_s == pytest.approx(8) for name, each in found.items() if name != "p-reduce smart")
    assert "Stay synchronous: ranks wait 0% of the time" in advice(list(found.values()))


def test_values_computed_by_hand():
    """One of two ranks takes twice as long in every step. The fast rank makes its 8 steps in 8 s."""
    found = by_method(np.array([[1.0] * 8, [2.0] * 8]))
    assert [found[name].steps_per_s for name in NEVER_WAIT] == pytest.approx([12 / 8] * 3)
    assert found["synchronous"].steps_per_s == found["bsp"].steps_per_s == pytest.approx(8 / 8)
    # Under D-PSGD the fast rank needs the slow one's step before: it makes its steps at 1, 2, 4, 6 and 8 s.
    assert found["d-psgd ring"].steps_per_s == pytest.approx((5 + 4) / 8)
    assert found["sgp one-peer-exponential"].steps_per_s == pytest.approx((4 + 4) / 8)
    assert [found[name].averaged for name in ("synchronous", "d-psgd ring", "hop ring standard")] == [2, 2, 2]
    assert found["solo"].speedup == pytest.approx(1.5)


def test_the_age_of_gradients_computed_by_hand():
    """Until 8 s, 3 of the fast worker's 8 gradients miss one update, and the slow worker's 3 gradients miss 2 each."""
    found = by_method(np.array([[1.0] * 8, [2.25] * 8]))
    assert found["asp"].staleness == pytest.approx((3 * 1 + 3 * 2) / (8 + 3))


@pytest.mark.parametrize("load", ["one-late", "lognormal", "cloud", "random-slow", "speeds"])
def test_no_method_is_faster_than_ranks_that_never_wait(load):
    work = workload.make(load, ranks=8, calls=100, work=0.1, skew=0.03, seed=3)
    found = by_method(work)
    most = sum((row.cumsum() <= work.sum(axis=1).min() * (1 + 1e-9)).sum() for row in work) / work.sum(axis=1).min()
    assert all(each.steps_per_s <= most * (1 + 1e-9) for each in found.values())
    assert all(found[name].steps_per_s == pytest.approx(most) for name in NEVER_WAIT)
    k = [found[f"quorum:{k}"] for k in (4, 6, 7)]
    assert [each.speedup for each in k] == sorted((each.speedup for each in k), reverse=True)
    assert [each.averaged for each in k] == sorted(each.averaged for each in k)


def test_a_rank_that_is_always_slow():
    """Any quorum but the synchronous one does without it, so the largest is advised."""
    found = forecasts(one_slow())
    assert advice(found).startswith('policy="quorum:7" is 3.62 times as fast as the synchronous method.')
    assert "7.0 of 8 ranks" in advice(found)


def test_two_ranks_of_which_one_is_slow():
    """A quorum of one of two is solo's; nothing else is worth it."""
    assert 'policy="quorum:1"' in advice(forecasts(one_slow(ranks=2)))


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (np.ones((1, 5)), "2 or more ranks"),
        (np.ones((2, 0)), "got shape"),
        (np.ones(4), "got shape"),
        (np.array([[1.0, -1.0], [1.0, 1.0]]), "finite seconds >= 0"),
        (np.array([[1.0, np.inf], [1.0, 1.0]]), "finite seconds >= 0"),
        (np.array([[0.0, 0.0], [1.0, 1.0]]), "a rank without work"),
        (np.array([[1.0, 1.0], [9.0, 9.0]]), "expected more steps: when the first rank has made its 2"),
    ],
)
def test_work_that_is_refused(work, says):
    with pytest.raises(ValueError, match=says):
        forecasts(work)


def test_the_command(tmp_path):
    path = tmp_path / "steps.csv"
    np.savetxt(path, one_slow().T, delimiter=",", header="seconds")
    done = CliRunner().invoke(main, ["advise", str(path)])
    assert done.exit_code == 0, done.output
    assert "quorum:7" in done.output
    assert "p-reduce smart" in done.output
    lines = CliRunner().invoke(main, ["advise", str(path), "--json"]).output.splitlines()
    assert {json.loads(line)["method"] for line in lines} >= {"synchronous", "solo", "hop ring standard", "elastic:15"}


def test_a_file_that_the_command_refuses(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("0.1\n0.2\n")
    done = CliRunner().invoke(main, ["advise", str(path)])
    assert done.exit_code == 1
    assert "2 or more ranks" in done.output
