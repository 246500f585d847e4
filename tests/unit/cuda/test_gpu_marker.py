"""What is for a GPU, where there is none: tests are skipped and say why, or fail; the benchmark's program works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from devices import needs_cuda, why_no_gpu

ROOT = Path(__file__).resolve().parents[3]
without_gpu = pytest.mark.skipif(not why_no_gpu(), reason="there is a GPU")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, env=os.environ | environment
    )  # fmt: skip


def marked(**environment: str) -> subprocess.CompletedProcess[str]:
    test = "tests/gpu/test_groups_on_a_gpu.py::test_there_is_a_device"
    return run("pytest", "-q", "-rs", "-p", "no:cacheprovider", test, **environment)


@pytest.mark.nightly
def test_all_can_be_collected():
    done = run("pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/gpu")
    assert done.returncode == 0, done.stdout


@without_gpu
def test_it_is_skipped_and_says_why():
    done = marked(PYC_REQUIRE_CUDA="")
    assert done.returncode == 0
    assert "1 skipped" in done.stdout
    assert f"no GPU: CUDA is off: {why_no_gpu()}" in done.stdout


@without_gpu
def test_it_fails_where_a_gpu_is_required():
    done = marked(PYC_REQUIRE_CUDA="1")
    assert done.returncode == 1
    assert "PYC_REQUIRE_CUDA=1, but this was skipped: Skipped: no GPU: CUDA is off: " in done.stdout


@without_gpu
def test_the_benchmark_says_that_there_is_none():
    done = run(sys.executable, "tests/gpu/bench_bars.py")
    assert done.returncode == 1
    assert done.stderr == f"no GPU: CUDA is off: {why_no_gpu()}\n"


@needs_cuda
def test_the_benchmark_runs_on_the_simulated_driver():
    done = run(sys.executable, "tests/gpu/bench_bars.py", "--simulated", "--megabytes", "0.01", "--repetitions", "2")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["where"], record["ranks"], record["bytes"], record["right"]) == ("simulated driver", 1, 10000, True)
