"""bench/baselines.py without a job: its settings, what jobs write, the best of each size, and the time limit."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from common.contest import Contestant, compare, geometric_mean, read_lines, within_reach
from common.environments import Environment, NotInstalledError
from common.jobs import run_job
from common.mpis import INTEL_MPI, MPIS, OPEN_MPI, Mpi, Setting, job_variables, parse_mpis


def line(size: int, mean: float, *, p50: float | None = None, stationary: bool = True) -> dict:
    p50 = mean if p50 is None else p50
    latency = {"min": mean / 2, "mean": mean, "p50": p50, "p99": 2 * mean, "max": 3 * mean}
    return {"bytes": size, "latency_us": latency, "stationary": stationary, "warmup": 16, "library": "Some MPI"}


def contestant(name: str, **means: list[float]) -> Contestant:
    """`means` by size, as b8=[...], of one run after another."""
    return Contestant(name, [line(int(size[1:]), mean) for size, of in means.items() for mean in of])


def test_lines_of_a_job_that_was_ended():
    whole = "".join(json.dumps(line(size, 1.0)) + "\n" for size in (8, 4096))
    assert [one["bytes"] for one in read_lines(whole)] == [8, 4096]
    assert [one["bytes"] for one in read_lines(whole + '{"bytes": 32')] == [8, 4096]
    assert read_lines("") == []
    with pytest.raises(json.JSONDecodeError):
        read_lines("a warning of a library\n" + whole)


def test_a_figure_is_the_median_over_runs():
    found = contestant("x", b8=[30.0, 1.0, 2.0]).at(8)
    assert (found.mean, found.p99) == (2.0, 4.0)
    assert contestant("x", b8=[1.0]).at(4096) is None


def test_each_size_is_compared_with_its_best():
    ours = contestant("Full()", b8=[1.0, 1.0], b4096=[2.0, 2.0])
    default = contestant("default", b8=[3.0, 5.0], b4096=[3.0, 3.0])
    other = contestant("other", b8=[2.0, 2.0], b4096=[9.0, 9.0])
    broken = contestant("broken")
    small, large = (compare(ours, [default, other, broken], size) for size in (8, 4096))
    assert (small.best, small.speedup, small.speedup_over_default) == ("other", 2.0, 4.0)
    assert (large.best, large.speedup, large.speedup_over_default) == ("default", 1.5, 1.5)
    assert small.mean_of == {"default": 4.0, "other": 2.0, "broken": None}
    assert compare(ours, [default, other], 65536) is None
    assert compare(ours, [broken], 8) is None
    unmeasured_default = compare(ours, [broken, other], 8)
    assert (unmeasured_default.best, unmeasured_default.speedup_over_default) == ("other", None)


def test_only_who_is_far_behind_at_every_size_is_not_run_again():
    quick = contestant("quick", b8=[1.0], b4096=[10.0])
    good_at_one = contestant("good at one", b8=[50.0], b4096=[9.0])
    slow = contestant("slow", b8=[2.0], b4096=[18.0])
    ended = contestant("ended", b8=[70.0])
    ended.failure = "did not end within 60 s"
    field = [quick, good_at_one, slow, ended, contestant("unmeasured")]
    within_reach(field, [8, 4096])
    assert [one.too_slow for one in field] == [False, False, True, False, True]
    assert [one.goes_on for one in field] == [True, True, False, False, False]


def test_geometric_mean():
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_settings_have_names_of_their_own_and_mpis_are_parsed():
    for mpi in MPIS.values():
        names = [setting.name for setting in mpi.settings]
        assert len(set(names)) == len(names)
        assert names[0] == "default"
        assert not mpi.settings[0].variables
    assert parse_mpis("intel, openmpi,intel") == [INTEL_MPI, OPEN_MPI]
    with pytest.raises(ValueError, match="expected of openmpi, mpich, intel, got 'cray'"):
        parse_mpis("openmpi,cray")


def test_a_job_has_its_own_setting_and_no_other():
    linear = OPEN_MPI.settings[1]
    environment = {"PATH": "/usr/bin", "HOME": "/x", "OMPI_MCA_coll": "basic", "PMIX_RANK": "0", "I_MPI_FABRICS": "ofi"}
    variables = job_variables(environment, OPEN_MPI, linear, "/env/bin")
    assert variables["PATH"] == "/env/bin:/usr/bin"
    assert variables["HOME"] == "/x"
    assert variables["OMPI_MCA_coll_tuned_allreduce_algorithm"] == "1"
    assert not variables.keys() & {"OMPI_MCA_coll", "PMIX_RANK", "I_MPI_FABRICS"}


def test_a_job_that_does_not_end_is_ended_with_all_its_processes(tmp_path):
    program = "sleep 60 & echo $! > child; echo; sleep 60"
    begin = time.monotonic()
    outcome = run_job(["sh", "-c", program], dict(os.environ), tmp_path, 1.0)
    assert outcome.failure == "did not end within 1 s"
    assert time.monotonic() - begin < 30
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    deadline = time.monotonic() + 10
    while state.exists() and state.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_job_that_fails_says_why(tmp_path):
    printed = "echo ------; echo note; echo 'Error: no such thing' >&2; exit 3"
    assert run_job(["sh", "-c", printed], {}, tmp_path, 10).failure == "ended with code 3: Error: no such thing"
    assert run_job(["sh", "-c", "exit 1"], {}, tmp_path, 10).failure == "ended with code 1: it printed nothing"
    assert run_job(["/no/such"], {}, tmp_path, 10).failure == "/no/such: No such file or directory"
    assert run_job(["true"], dict(os.environ), tmp_path, 10).failure == ""


@pytest.mark.nightly
def test_an_mpi_that_cannot_be_installed_is_named_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    missing = Mpi("missing", "Missing MPI", "no-such-mpi", ("mpiexec",), {}, (Setting("default"),))
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(NotInstalledError, match="No matching distribution found for no-such-mpi"):
            Environment.of(missing, tmp_path, said.append)
    assert len(said) == 2
    assert said[0].startswith(f"making an environment for Missing MPI in {tmp_path}/missing: no-such-mpi numpy==")
