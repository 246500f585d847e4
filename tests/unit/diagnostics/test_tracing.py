"""Joining the traces of ranks."""

import json

import pytest
from click.testing import CliRunner

from pycollectives.commands.trace import trace
from pycollectives.diagnostics import timeline, traces


def write(folder, rank, events=None):
    path = folder / f"run.rank{rank}.json"
    events = [{"ph": "X", "name": "send", "pid": rank, "ts": 1.0, "dur": 2.0}] if events is None else events
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_merge(tmp_path):
    out = tmp_path / "run.json"
    assert traces.merge([write(tmp_path, rank) for rank in range(3)], out) == 3
    assert [event["pid"] for event in json.loads(out.read_text())["traceEvents"]] == [0, 1, 2]


def drawn(paths, out):
    """The output of `trace draw`, which is refused."""
    done = CliRunner().invoke(trace, ["draw", *map(str, paths), "--output", str(out)])
    assert done.exit_code == 1
    assert not out.exists()
    return done.output


def test_a_rank_twice(tmp_path):
    paths = [write(tmp_path, 0)] * 2
    with pytest.raises(ValueError, match="rank 0 appears twice"):
        traces.merge(paths, tmp_path / "run.json")
    assert "rank 0 appears twice" in drawn(paths, tmp_path / "run.svg")


def test_traces_of_different_runs_are_refused(tmp_path):
    paths = []
    for rank, group, communicator in ((0, "12", 0), (1, "12", 0), (2, "13", 1), (3, "14", 0)):
        paths.append(write(tmp_path, rank))
        content = json.loads(paths[-1].read_text())
        content["otherData"] = {"communicator": communicator, "group": group}
        paths[-1].write_text(json.dumps(content))
    assert traces.merge(paths[:3], tmp_path / "run.json") == 3
    with pytest.raises(ValueError, match=r"run.rank3.json: from a different run than .*run.rank0.json"):
        traces.merge(paths, tmp_path / "run.json")
    assert "run.rank3.json: from a different run than" in drawn(paths, tmp_path / "run.svg")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": {}}', '{"traceEvents": [1]}', '{"traceEvents": [{}]}']
)
def test_no_trace(tmp_path, text):
    path = tmp_path / "run.rank0.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"run\.rank0\.json"):
        traces.merge([path], tmp_path / "run.json")


def spans_of_three_rounds():
    kinds = [("contribute", 0, 1), ("wait", 1, 5), ("reduce", 5, 6), ("round", 5, 6)]
    return [
        {"ph": "X", "name": name, "pid": 0, "ts": 10.0 * number + begin, "dur": end - begin, "args": {"round": number}}
        for number in range(3)
        for name, begin, end in kinds
    ]


def test_spans_of_some_rounds_and_what_happened_meanwhile():
    average = {"ph": "X", "name": "average with rank 1", "pid": 0, "ts": 12.0, "dur": 1.0, "args": {}}
    later = {**average, "ts": 25.0}
    chosen = timeline.select([*spans_of_three_rounds(), average, later], (1, 1))
    assert {event["args"].get("round") for event in chosen} == {1, None}
    assert average in chosen
    assert later not in chosen
    with pytest.raises(ValueError, match="no events of rounds 3 to 9"):
        timeline.select(spans_of_three_rounds(), (3, 9))


def test_a_picture_has_a_row_per_rank(tmp_path):
    pytest.importorskip("matplotlib")
    events = [{**event, "pid": rank} for event in spans_of_three_rounds() for rank in (0, 1)]
    path = tmp_path / "run.svg"
    timeline.draw(events, path)
    text = path.read_text()
    assert all(f"<!-- rank {rank} -->" in text for rank in (0, 1))
    assert all(f"<!-- {name} -->" in text for name in ("contribute", "wait", "reduce", "round"))
    assert "<!-- message -->" not in text


def test_iterations_are_numbered(tmp_path):
    pytest.importorskip("matplotlib")
    compute = {"ph": "X", "name": "compute", "pid": 0}
    events = [
        {**compute, "ts": 0.0, "dur": 50.0, "args": {"round": 41}},
        {**compute, "ts": 60.0, "dur": 0.1, "args": {"round": 42}},  # too narrow for its number
        {**compute, "ts": 61.0, "dur": 39.0, "args": {"round": 43}},
    ]
    path = tmp_path / "run.svg"
    timeline.draw(events, path)
    assert [number for number in ("41", "42", "43") if f"<!-- {number} -->" in path.read_text()] == ["41", "43"]


def test_a_trace_with_nothing_to_draw(tmp_path):
    with pytest.raises(ValueError, match="nothing to draw"):
        timeline.draw([{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "rank 0"}}], tmp_path / "run.svg")
