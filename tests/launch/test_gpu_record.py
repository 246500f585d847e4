"""The program that makes the record of a GPU run, on the simulated driver, and its arithmetic on numbers made up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from devices import needs_cuda

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

from bars import bars  # noqa: E402

DEVICES = {
    "program": "bench_bars", "ranks": 4, "bytes": 10**8,
    "on_device_alone_s": 5e-5, "on_device_s": 18e-5, "to_host_alone_s": 4e-3, "to_host_s": 8e-3,
    "to_device_alone_s": 2e-3, "to_device_s": 1e-2, "staged_s": 40e-3,
}  # fmt: skip
SKEW = {
    "bench": "skew", "policy": "solo", "ranks": 8, "bytes": 1 << 20, "skew_us": 1e5, "early_us": {"max": 2500.0},
}  # fmt: skip


def test_bars_are_ratios_to_the_best_that_was_measured():
    found = bars([{**DEVICES, "p_reduce_s": 1e-3, "staged_p_reduce_s": 16e-3}, SKEW])
    assert [(bar["value"], bar["at_least"], bar["reached"]) for bar in found] == [
        (0.54, 0.28, True),  # 3 times 4 ranks' values, at 45 us for each
        (40.0, 8.0, True),
        (0.5, 0.4, True),  # 4 ranks' values in one direction, at 2 ms for each
        (2.0, 1.0, True),
    ]
    assert all(bar["how"] for bar in found)


def test_what_was_not_measured_has_no_bar():
    assert bars([DEVICES, {**SKEW, "policy": "majority"}, {"program": "bench_bars", "ranks": 8, "failed": 1}]) == []
    (missed,) = bars([{**SKEW, "early_us": {"max": 1e5}}])
    assert (missed["value"], missed["reached"]) == (0.05, False)


@needs_cuda
@pytest.mark.timeout(300)
def test_the_record_of_a_rehearsal_says_that_it_is_one(tmp_path):
    """Without the build, and without the marked tests, which tests/mpi has in its own way."""
    command = [
        sys.executable, "tests/gpu/record.py", "--rehearse", "--environment", sys.prefix, "--ranks", "2",
        "--seconds", "280", "--only", "^(?!tests)", str(tmp_path),
    ]  # fmt: skip
    environment = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "log.txt").read_text()[-8000:]
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert record["machine"]["where"] == "simulated driver"
    assert record["machine"]["cuda"]["devices"][0]["name"] == "simulated driver's device"
    assert {part["status"] for part in record["parts"]} == {"done"}
    assert [one["check"] for one in record["probe"]] == ["kernels", "streams", "processes", "arrays"]
    ours, others = ([one for one in record["benchmarks"] if (key in one)] for key in ("program", "bench"))
    assert [one["where"] for one in ours] == ["simulated driver"]
    assert all(one["right"] for one in [*record["probe"], *ours])
    assert {one["bench"] for one in others} == {"skew", "latency", "groups"}
    assert {one["device_name"] for one in others} == {"simulated driver's device"}
    assert [bar["bar"] for bar in record["bars"]] == [
        "P-Reduce over the floor of device copies",
        "staging with mpi4py over P-Reduce",
        "the staged path over the bound of the host link",
        "early callers of solo allreduce",
    ]
