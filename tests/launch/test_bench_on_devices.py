"""The benchmarks with --device cuda, on simulated devices: they run, verify, compare, and say what they ran on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from devices import needs_cuda, why_no_gpu
from launcher import Outcome, environment, launcher, run

ROOT = Path(__file__).resolve().parents[2]
SHARED = "; 4 ranks share one"
LEFT_OUT = "# NCCL is left out: the simulated driver has none\n"


def bench(*arguments: object) -> Outcome:
    program = str(ROOT / "tests" / "gpu" / "simulated_bench.py")
    outcome = run(
        [*launcher(), "-n", "4", sys.executable, program, *map(str, arguments)],
        limit=150,
        env=environment(OMPI_MCA_mpi_yield_when_idle="1"),
    )
    assert not outcome.hung
    assert outcome.status == 0
    return outcome


def records(path: Path) -> list[dict]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for record in found:
        assert record["verified"]
        assert (record["device"], record["device_name"]) == ("cuda", "simulated driver's device")
        assert record["path"] == "board, cuda"
    return found


@needs_cuda
def test_skewed_latency_where_ranks_share_a_device(tmp_path):
    """Early callers of a solo round are those that do not sleep, and they wait for nobody."""
    path = tmp_path / "skew.jsonl"
    options = ["--policy", "solo", "--bytes", 65536, "--iterations", 4, "--warmup", 1]
    skew = ["--skew", "one-late", "--skew-us", 300_000]
    outcome = bench("--", "skew", *options, *skew, "--json", path)
    assert f"arrays on cuda devices: simulated driver's device, by simulated driver{SHARED}\n" in outcome.out
    assert LEFT_OUT in outcome.out
    for record in records(path):
        assert (record["baseline"], record["ranks_per_device"]) == ("staged MPI_Allreduce", 4)
        assert record["early_us"]["max"] < 300_000 < record["baseline_us"]["max"]
        assert "nccl_us" not in record


@needs_cuda
def test_latency_beside_nccl_where_each_rank_has_a_device(tmp_path):
    path = tmp_path / "latency.jsonl"
    options = ["--policy", "full", "--bytes", "8,65536", "--iterations", 4, "--warmup", 2, "--json", path]
    outcome = bench("--devices", 4, "--nccl", "--", "latency", *options)
    assert "NCCL(us)" in outcome.out
    assert "share" not in outcome.out
    for record in records(path):
        assert record["ranks_per_device"] == 1
        assert record["nccl_us"]["mean"] > 0
        assert "iallreduce_us" not in record


@needs_cuda
def test_groups_beside_both_allreduces(tmp_path):
    path = tmp_path / "groups.jsonl"
    options = ["--model-bytes", 4e4, "--compute-ms", 5, "--iterations", 20, "--generators", "random,smart,static"]
    bench("--devices", 4, "--nccl", "--", "groups", *options, "--json", path)
    found = records(path)
    assert [record["generator"] for record in found] == ["allreduce", "nccl", "random", "smart", "static"]
    assert [record["collective"] for record in found] == 2 * ["allreduce"] + 3 * ["partial_reduce"]
    assert {record["baseline"] for record in found} == {"staged MPI_Allreduce"}


@pytest.mark.skipif(not why_no_gpu(), reason="there is a GPU")
def test_without_a_device_all_ranks_say_so_and_end():
    command = [*launcher(), "-n", "2", sys.executable, str(ROOT / "bench" / "skew.py"), "--device", "cuda"]
    outcome = run(command, limit=60, env=environment())
    assert outcome.status == 1
    assert outcome.err.count("error: --device cuda: CUDA is off: ") == 1
