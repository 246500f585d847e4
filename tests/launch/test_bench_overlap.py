"""`bench/overlap.py` on two ranks: every method is measured, and trains the same weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from launcher import launcher, run
from nightly import nightly_unless

pytest.importorskip("torch")

pytestmark = pytest.mark.timeout(240)

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize("model", nightly_unless(lambda model: model == "mlp", ["mlp", "cnn", "transformer"]))
def test_every_method_is_measured_and_verified(tmp_path, model):
    path = tmp_path / "overlap.jsonl"
    options = ["--model", model, "--width", "4", "--iterations", "4", "--bucket-bytes", "4096", "--json", str(path)]
    outcome = run([*launcher(), "-n", "2", sys.executable, str(BENCH / "overlap.py"), *options], limit=200)
    assert outcome.status == 0
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["method"] for record in records] == ["alone", "after", "overlap", "ddp"]
    assert all(record["verified"] and record["latency_us"]["p50"] > 0 for record in records)
    alone, after, overlap, _ = records
    assert (alone["exposed_us"], alone["hidden"], after["hidden"]) == (None, None, None)
    if overlap["hidden"] is not None:
        assert overlap["hidden"] == pytest.approx(1 - overlap["exposed_us"] / after["exposed_us"])
