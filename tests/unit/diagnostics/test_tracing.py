"""Joining the traces of ranks."""

import json

import pytest

from pycollectives.diagnostics import traces


def write(folder, rank, events=None):
    path = folder / f"run.rank{rank}.json"
    events = [{"ph": "X", "name": "send", "pid": rank, "ts": 1.0, "dur": 2.0}] if events is None else events
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_merge(tmp_path):
    out = tmp_path / "run.json"
    assert traces.merge([write(tmp_path, rank) for rank in range(3)], out) == 3
    assert [event["pid"] for event in json.loads(out.read_text())["traceEvents"]] == [0, 1, 2]


def test_a_rank_twice(tmp_path):
    with pytest.raises(ValueError, match="rank 0 comes twice"):
        traces.merge([write(tmp_path, 0)] * 2, tmp_path / "run.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": {}}', '{"traceEvents": [1]}', '{"traceEvents": [{}]}']
)
def test_no_trace(tmp_path, text):
    path = tmp_path / "run.rank0.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"run\.rank0\.json"):
        traces.merge([path], tmp_path / "run.json")
