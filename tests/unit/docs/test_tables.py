"""Tables that are made of results."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))

import benchmark_tables
import tables
from benchmark_tables import grid, measured
from experiment_tables import measured_by_job
from tables import table_by_load


def one(job, seconds, speedup):
    return {"job": job, "time_to_target_s": seconds, "speedup": speedup}


def test_servers_have_a_row_for_each_and_a_column_for_each_load():
    """Means over seeds; a target that one seed has not reached is none."""
    first = [one("bsp, cloud", 4.0, 1.0), one("asp, cloud", 2.0, 2.0), one("asp, one, slow", 3.0, 1.5)]
    second = [one("bsp, cloud", 5.0, 1.0), one("asp, cloud", 1.0, 5.0), one("asp, one, slow", None, None)]
    assert table_by_load({"results": first + second}).splitlines() == [
        "|  | cloud | one, slow |",
        "| --- | --- | --- |",
        "| `bsp` | 4.5 s (1.00x) | - |",
        "| `asp` | 1.5 s (3.50x) | not reached |",
    ]


def test_a_grid_has_a_row_for_each_title_and_a_dash_for_what_is_missing():
    entries = [(["solo", "a"], {"8 B": "1"}), (["full", "a"], {"8 B": "2"}), (["solo", "a"], {"4 MB": "3"})]
    assert grid(["policy", "case"], entries).splitlines() == [
        "| policy | case | 8 B | 4 MB |",
        "| --- | --- | --- | --- |",
        "| solo | a | 1 | 3 |",
        "| full | a | 2 | - |",
    ]


def test_a_measurement_shows_its_machine_and_its_records(tmp_path, monkeypatch):
    for module in (benchmark_tables, tables):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    block = measured({"a": "few", "b": "many"}, ["x"], lambda title, of: ([title], {"y": of["y"]}) if of["y"] else None)
    for name, machine in (("a", "one, Linux, 2 hosts"), ("b", "another, Linux")):
        assert block() == "Not measured yet: `python docs/generate.py --measure " + ("a b`." if name == "a" else "b`.")
        records = [{"machine": machine, "mpi": "Open MPI", "y": value} for value in (f"{name}1", "")]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert block().splitlines() == [
        "one, Open MPI: [a](results/a.txt).",
        "another, Open MPI: [b](results/b.txt).",
        "",
        "| x | y |",
        "| --- | --- |",
        "| few | a1 |",
        "| many | b1 |",
    ]


def test_a_speedup_names_its_baseline_if_that_is_not_the_last_one_above():
    def job(name, baseline, speedup):
        point = {"loss": 0.5, "accuracy": None}
        return {
            "job": name,
            "baseline": baseline,
            "steps_per_s": 2.0,
            "ideal_steps_per_s": None,
            "speedup": speedup,
            "batch": 64,
            "curve": [point],
        }

    jobs = [
        job("bsp", None, 1.0),
        job("asp", "bsp", 2.0),
        job("bsp, slow", None, 1.0),
        job("dssp", "bsp, slow", 4.0),
        job("ssp", "bsp", 3.0),
    ]
    assert measured_by_job({"results": jobs}).splitlines() == [
        "| method | examples/s | speedup | validation loss |",
        "| --- | --- | --- | --- |",
        "| bsp | 128 | 1.00x | 0.5 |",
        "| asp | 128 | 2.00x | 0.5 |",
        "| bsp, slow | 128 | 1.00x | 0.5 |",
        "| dssp | 128 | 4.00x | 0.5 |",
        "| ssp | 128 | 3.00x over bsp | 0.5 |",
    ]
