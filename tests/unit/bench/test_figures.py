"""Labels in the figures of bench/plot.py do not cover each other."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from common import figures


def record(policy: str, size: int, mean: float, mpi: float) -> dict:
    return {
        "bench": "skew",
        "policy": policy,
        "bytes": size,
        "latency_us": {"mean": mean},
        "baseline": "MPI_Allreduce",
        "baseline_us": {"mean": mpi},
        "speedup": mpi / mean,
        "active_mean": 1.0,
        "ranks": 32,
        "path": "board",
        "skew": "linear",
        "skew_us": 1000.0,
    }


def test_labels_have_room_or_are_left_out():
    needed = figures.LABEL
    heights = [0.0, 100.0, 100.0 + 0.9 * needed, 100.0 + 1.8 * needed, 100.0 + 5 * needed]
    sides = [figures.label_side(own - other for other in heights) for own in heights]
    assert sides == [1, -1, 0, 1, 1]
    assert figures.label_side([]) == 1
    labels = [figures.speedup_label(value) for value in (0.512, 4.0, 14.3, 1283.4)]
    assert labels == ["0.51x", "4.0x", "14x", "1283x"]


def test_labels_of_a_figure_cover_neither_each_other_nor_points():
    """The latencies of 32 ranks, where majority and quorum are close to each other."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    means = {
        "solo": (12.6, 22.4, 45.7, 417.0),
        "majority": (5188.0, 5509.0, 5571.0, 13421.0),
        "quorum:16": (3921.0, 3939.0, 4177.0, 10051.0),
    }
    mpi = {8: 16283.0, 32768: 17557.0, 262144: 18390.0, 4194304: 28033.0}
    records = [
        record(policy, size, mean, mpi[size])
        for policy, row in means.items()
        for size, mean in zip(mpi, row, strict=True)
    ]
    (panel,) = figures.panels(records)
    figure, axes = pyplot.subplots(figsize=(6.4, 4.8), layout="constrained")
    panel.draw(axes, panel.records)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    points = [axes.transData.transform(point) for line in axes.get_lines() for point in line.get_xydata()]
    pyplot.close(figure)
    assert len(boxes) == len(records)
    assert not [1 for one, other in itertools.combinations(boxes, 2) if one.overlaps(other)]
    assert not [1 for box in boxes for point in points if box.contains(*point)]


def test_the_times_of_a_search_have_a_panel_for_each_lookahead_and_a_line_for_each_algorithm():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    records = [
        {"bench": "zipline", "algorithm": name, "workers": n, "lookahead": ahead, "time_us": {"p50": float(n * ahead)}}
        for ahead in (15, 150)
        for name in ("zipline", "zipline_linear")
        for n in (100, 10)
    ]
    panels = figures.panels(records)
    assert [panel.title for panel in panels] == ["ZipLine, R = 15", "ZipLine, R = 150"]
    figure, axes = pyplot.subplots()
    panels[1].draw(axes, panels[1].records)
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.get_lines()}
    pyplot.close(figure)
    assert lines == {key: [[10, 1500], [100, 15000]] for key in ("zipline", "zipline_linear")}
