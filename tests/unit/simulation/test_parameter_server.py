"""The summary of a simulated parameter server, and the command that prints it."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

import pycollectives as pc
from pycollectives.commands.simulate import simulate as command
from pycollectives.simulation.parameter_server import history, seconds_for_all, simulate

ONE_SLOW = np.repeat(np.array([0.1] * 7 + [0.3])[:, None], 90, axis=1)


def test_bsp():
    """Each iteration takes as long as its slowest worker; nothing is stale."""
    work = np.random.default_rng(4).uniform(0.1, 0.2, (5, 40))
    summary = simulate(pc.servers.BSP(), work)
    seconds = work.max(axis=0).sum()
    assert summary.seconds == pytest.approx(seconds)
    assert summary.iterations_per_s == pytest.approx(40 / seconds)
    assert summary.waiting_fraction == pytest.approx(1 - work.sum() / (5 * seconds))
    assert (summary.workers, summary.updates, summary.supersteps) == (5, 40, 40)
    assert (summary.staleness_mean, summary.staleness_max, summary.discarded_fraction) == (0, 0, 0)
    assert summary.superstep_s_mean == pytest.approx(seconds / 40)
    assert summary.slack_s_mean == pytest.approx((work.max(axis=0) - work.min(axis=0)).mean())


def test_asp():
    """Until the fastest has ended, after 9 s: 7 * 90 + 30 iterations."""
    summary = simulate(pc.servers.ASP(), ONE_SLOW)
    assert summary.seconds == pytest.approx(9)
    assert summary.iterations_per_s == pytest.approx((7 * 90 + 30) / 8 / 9, rel=0.005)
    assert summary.waiting_fraction == 0
    assert summary.staleness_mean == pytest.approx(7, rel=0.05)
    assert summary.supersteps == 0


def test_elastic_bsp_with_one_slow_worker():
    """Each superstep of 0.9 s has 7 * 9 + 3 iterations, and nobody waits."""
    summary = simulate(pc.servers.ElasticBSP(15), ONE_SLOW)
    assert summary.iterations_per_s / simulate(pc.servers.BSP(), ONE_SLOW).iterations_per_s == pytest.approx(2.75)
    assert summary.supersteps == 10
    assert summary.superstep_s_mean == pytest.approx(0.9)
    assert summary.slack_s_mean == pytest.approx(0, abs=1e-9)


def test_waiting_that_goes_on_in_the_end_is_cut():
    """SSP(0): the fast worker waits 3 s of each 4."""
    summary = simulate(pc.servers.SSP(0), np.array([[1.0] * 10, [4.0] * 10]))
    assert summary.waiting_fraction == pytest.approx(3 / 8)


@pytest.mark.parametrize(
    ("sync", "seconds"),
    [
        (pc.servers.BSP(patience=math.inf), 8.0),  # the slowest of each iteration
        (pc.servers.ASP(), 5.0),  # the slowest of all iterations
        (pc.servers.SSP(0, patience=math.inf), 8.0),
        (pc.servers.EAMSGD(2, 0.1), 5.0),
        (pc.servers.EAMSGD(3, 0.1), 5.0),  # one iteration is after the last push
        (pc.servers.EAMSGD(5, 0.1), 5.0),  # all are
    ],
)
def test_seconds_until_the_last_worker_has_ended(sync, seconds):
    """Two workers, each slow in another half."""
    assert seconds_for_all(np.array([[2.0, 2, 1, 0], [0, 1, 2, 2]]), sync) == pytest.approx(seconds)


def test_the_last_worker_is_not_waited_for_by_those_that_have_ended():
    assert seconds_for_all(ONE_SLOW, pc.servers.ElasticBSP(15)) == pytest.approx(27)


def test_a_late_trial_that_is_not_given_up_takes_its_time():
    sync = pc.servers.MindFlayer(1, 0.5, patience=math.inf)
    assert seconds_for_all(np.full((2, 3), 2.0), sync) == pytest.approx(1.5)
    assert seconds_for_all(np.full((2, 3), 2.0), sync, gives_up=False) == pytest.approx(6)


def test_messages_take_time():
    assert simulate(pc.servers.BSP(), np.full((3, 10), 0.1), latency=0.05).iterations_per_s == pytest.approx(1 / 0.2)


def test_eamsgd_pushes_after_each_period():
    summary = simulate(pc.servers.EAMSGD(10, 0.1), np.full((2, 95), 0.1))
    assert summary.updates == 18
    assert summary.iterations_per_s == pytest.approx(10)
    with pytest.raises(ValueError, match="expected at least 10 iterations, got 9"):
        simulate(pc.servers.EAMSGD(10, 0.1), np.full((2, 9), 0.1))


def test_discarded():
    """A gradient that takes twice as long as the others' is always too old for Ringmaster(1)."""
    summary = simulate(pc.servers.Ringmaster(1), np.array([[1.0] * 20, [2.5] * 20]))
    assert summary.discarded_fraction == pytest.approx(8 / 28)
    assert summary.staleness_max == 0


@pytest.mark.parametrize(
    "work", [np.zeros((2, 3)), np.ones(3), np.ones((0, 3)), -np.ones((2, 3)), np.full((2, 3), np.inf)]
)
def test_work_that_is_refused(work):
    with pytest.raises(ValueError, match="work: expected finite seconds"):
        simulate(pc.servers.BSP(), work)


def test_a_negative_latency_is_refused():
    with pytest.raises(ValueError, match="latency: expected seconds >= 0, got -1"):
        simulate(pc.servers.BSP(), np.ones((2, 3)), latency=-1)


def test_workers_that_wait_for_ever_are_named():
    with pytest.raises(RuntimeError, match="workers 0, 2 wait indefinitely"):
        history(pc.servers.BSP(patience=float("inf")), np.ones((3, 5)), vanishes=[5, 2, 5])


# --- The command


def run(*arguments):
    return CliRunner().invoke(command, list(arguments))


def test_the_command_prints_json():
    load = ["--load", "one-slow", "--work-us", "100000", "--skew-us", "200000"]
    done = run("--sync", "elastic:15", *load, "--ideal", "--calls", "90", "--json")
    figures = json.loads(done.stdout)
    assert (figures["sync"], figures["load"], figures["workers"]) == ("elastic:15", "one-slow", 8)
    assert figures["iterations_per_s"] == pytest.approx(2.75 / 0.3)
    assert figures["supersteps"] == 10


def test_the_command_prints_a_table():
    done = run("--sync", "ssp:3", "-n", "4")
    assert done.exit_code == 0
    for text in ("ssp:3, linear load", "throughput over BSP", "waiting", "staleness, mean", "supersteps"):
        assert text in done.stdout


def test_messages_of_the_command_take_time():
    load = ["--load", "equal", "--work-us", "1000", "--calls", "10", "--json"]
    done = run(
        "--sync", "bsp", *load, "--latency-us", "300", "--overhead-us", "50", "--gap-ns", "1", "--bytes", "100000"
    )
    assert json.loads(done.stdout)["iterations_per_s"] == pytest.approx(1 / 2e-3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--sync", "often"], "expected a synchronization, bsp, asp"),
        (["--sync", "bsp", "--policy", "solo"], "a parameter server has no --policy"),
        (["--sync", "bsp", "--barrier"], "a parameter server has no --barrier"),
        (["--sync", "bsp", "--late", "drop"], "a parameter server has no --late"),
        (["--sync", "bsp", "--ideal", "--latency-us", "1"], "messages take no time; expected no --latency-us"),
    ],
)
def test_what_the_command_refuses(arguments, text):
    done = run(*arguments)
    assert done.exit_code != 0
    assert text in done.output
