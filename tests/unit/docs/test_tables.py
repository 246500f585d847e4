"""Tables that are made of results."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "docs"))

from tables import servers_table


def one(job, seconds, speedup):
    return {"job": job, "time_to_target_s": seconds, "speedup": speedup}


def test_servers_have_a_row_for_each_and_a_column_for_each_load():
    """Means over seeds; a target that one seed has not reached is none."""
    first = [one("bsp, cloud", 4.0, 1.0), one("asp, cloud", 2.0, 2.0), one("asp, one, slow", 3.0, 1.5)]
    second = [one("bsp, cloud", 5.0, 1.0), one("asp, cloud", 1.0, 5.0), one("asp, one, slow", None, None)]
    assert servers_table({"results": first + second}).splitlines() == [
        "|  | cloud | one, slow |",
        "| --- | --- | --- |",
        "| `bsp` | 4.5 s (1.00x) | - |",
        "| `asp` | 1.5 s (3.50x) | not reached |",
    ]
