"""Rows that cannot be right are refused by every algorithm, in one line that names the row; the stub is complete."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import pycollectives as pc
from pycollectives import _zipline

TAKERS = [
    pc.zipline.zipline_linear,
    pc.zipline.zipline,
    pc.zipline.zipline_opt,
    pc.zipline.zipline_opt_bs,
    pc.zipline.grid_scan,
    pc.zipline.full_grid_scan,
    pc.zipline.naive,
    pc.zipline.Incremental,
    lambda rows: pc.zipline.write("never written", rows),
]

WRONG = [
    ([], ValueError, "expected at least one row, got none"),
    (np.empty((0, 5)), ValueError, "expected at least one row, got none"),
    (np.empty((5, 0)), ValueError, "row 0: expected timestamps, got none"),
    ([[1, 2], []], ValueError, "row 1: expected timestamps, got none"),
    ([[1, 2], [5, 5]], ValueError, "row 1: expected increasing timestamps, got 5 after 5 at index 1"),
    (np.array([[1, 2, 3], [4, 6, 5]]), ValueError, "row 1: expected increasing timestamps, got 5 after 6 at index 2"),
    ([[1.5, 2.5], [2.5, 0.5]], ValueError, "row 1: expected increasing timestamps, got 0.5 after 2.5 at index 1"),
    ([[1.0], [2.0, np.nan]], ValueError, "row 1: expected timestamps between -8.988465674311579e+307 and "
     "8.988465674311579e+307, got nan at index 1"),
    ([[np.nan], [2.0]], ValueError, "row 0: expected timestamps between -8.988465674311579e+307 and "
     "8.988465674311579e+307, got nan at index 0"),
    ([[1.0], [np.inf]], ValueError, "row 1: expected timestamps between -8.988465674311579e+307 and "
     "8.988465674311579e+307, got inf at index 0"),
    ([[0], [2**62]], ValueError, "row 1: expected timestamps between -4611686018427387904 and "
     "4611686018427387904, got 4611686018427387904 at index 0"),
    ([[-(2**62)], [0]], ValueError, "row 0: expected timestamps between -4611686018427387904 and "
     "4611686018427387904, got -4611686018427387904 at index 0"),
    (np.zeros((2, 3), np.float32), TypeError, "row 0: expected int64 milliseconds or float64 seconds, got float32"),
    (np.zeros((2, 3), np.int32), TypeError, "row 0: expected int64 milliseconds or float64 seconds, got int32"),
    ([[1], ["1"]], TypeError, "row 1: expected int64 milliseconds or float64 seconds, got <U1"),
    ([[1], [True]], TypeError, "row 1: expected int64 milliseconds or float64 seconds, got bool"),
    ([[1], np.array([1], ">i8")], TypeError, "row 1: expected int64 milliseconds or float64 seconds, got >i8"),
    ([[1], [2.0]], TypeError, "row 1: expected int64, as row 0 has, got float64"),
    (np.arange(3), ValueError, "row 0: expected an array of one dimension, got 0"),
    (np.arange(8).reshape(2, 2, 2), ValueError, "row 0: expected an array of one dimension, got 2"),
    (7, TypeError, "rows: expected an array of two dimensions, or one array per worker, got 7"),
]  # fmt: skip


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize(("rows", "kind", "text"), WRONG, ids=range(len(WRONG)))
def test_refused(taker, rows, kind, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as refused:
        taker(rows)
    assert str(refused.value) == text
    assert not [*tmp_path.iterdir()]


def test_a_list_of_lists_within_a_row():
    with pytest.raises(ValueError, match=r"^row 1: expected an array of timestamps, got \[\[1\], \[2, 3\]\]"):
        pc.zipline.zipline_linear([[1], [[1], [2, 3]]])


def test_the_stub_names_what_the_extension_has():
    tree = ast.parse((Path(pc.__file__).parent / "_zipline.pyi").read_text())
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert set(defined) == {name for name in vars(_zipline) if not name.startswith("_")}
    for name in ("IncrementalInt64", "IncrementalFloat64"):
        methods = {node.name for node in defined[name].body if isinstance(node, ast.FunctionDef)} - {"__init__"}
        assert methods == {name for name in vars(getattr(_zipline, name)) if not name.startswith("_")}


@pytest.mark.parametrize("points", [np.array([1.0, 2.0], np.float32), np.array([1, 9, 2, 9])[::2]])
def test_the_extension_copies_nothing_in_silence(points):
    with pytest.raises(TypeError):
        _zipline.zipline_linear(points, np.array([2]))
