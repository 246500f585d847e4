"""Files in the authors' text format are read as they were written; what is not in it is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pycollectives.zipline import generate, read, write

ROWS = {
    "whole numbers": [np.array([1643595472648, 1643595473795]), np.array([1643595472645]), np.array([-5, 0, 7])],
    "seconds": [np.array([0.1, 0.30000000000000004, 1e-7 + 1]), np.array([-2.5, 1e22])],
    "whole seconds": [np.array([1.0, 2.0]), np.array([3.0])],
    "generated": generate(12, 30, seed=1),
}


@pytest.mark.parametrize("kind", ROWS)
def test_round_trip(kind, tmp_path):
    path = tmp_path / "rows.txt"
    write(path, ROWS[kind])
    found = read(path)
    assert len(found) == len(ROWS[kind])
    for got, expected in zip(found, ROWS[kind], strict=True):
        assert got.dtype == expected.dtype
        assert got.tolist() == expected.tolist()


def test_what_is_written(tmp_path):
    write(tmp_path / "rows.txt", [[5, 6], [7]])
    assert (tmp_path / "rows.txt").read_text() == "0:5,6,\n1:7,\n"


def test_the_authors_write_the_last_worker_first(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("2:1643595472647,1643595473906,\n1:1643595472644,\n0:1643595472648,1643595474130,1643595475612,\n")
    assert [row.tolist() for row in read(str(path))] == [
        [1643595472648, 1643595474130, 1643595475612],
        [1643595472644],
        [1643595472647, 1643595473906],
    ]


def test_spaces_blank_lines_and_a_missing_last_comma_do_not_matter(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n0: 1, 2,\r\n\n 1:3")
    assert [row.tolist() for row in read(path)] == [[1, 2], [3]]


def test_one_number_that_is_not_whole_makes_all_of_them_seconds(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("0:1,2,\n1:2.5,\n")
    assert [row.dtype for row in read(path)] == [np.float64, np.float64]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ": expected at least one row, got none"),
        ("0:1,2,\n43595502288,1643595503770,\n", ":2: expected 'worker:timestamp,timestamp,...,', got "),
        ("0:1,2,\n1:\n", ":2: expected 'worker:timestamp,timestamp,...,', got '1:'"),
        ("0:1,,2,\n", ":1: expected 'worker:timestamp,timestamp,...,', got '0:1,,2,'"),
        ("0:1,2,,\n", ":1: expected 'worker:timestamp,timestamp,...,', got '0:1,2,,'"),
        ("0:1,x,\n", ":1: expected 'worker:timestamp,timestamp,...,', got '0:1,x,'"),
        ("0:1,nan,\n", ":1: expected 'worker:timestamp,timestamp,...,', got '0:1,nan,'"),
        ("0:1_000,\n", ":1: expected 'worker:timestamp,timestamp,...,', got '0:1_000,'"),
        ("-1:1,\n", ":1: expected 'worker:timestamp,timestamp,...,', got '-1:1,'"),
        ("a:1,\n", ":1: expected 'worker:timestamp,timestamp,...,', got 'a:1,'"),
        ("0:1,\n0:2,\n", ":2: expected each worker once, got worker 0 again"),
        ("0:1,\n2:2,\n", ": expected workers 0 to 1, got none with the number 1"),
        ("1:5,\n0:2,1,\n", ": row 0: expected increasing timestamps, got 1 after 2 at index 1"),
        ("0:1,99999999999999999999,\n", ": Python int too large"),
        ("0:1e999,\n", ": row 0: expected timestamps between "),
    ],
)
def test_refused(text, error, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text(text)
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is compared
        read(path)
    assert str(refused.value).startswith(f"{path}{error}")
    assert len(str(refused.value).splitlines()) == 1


def test_a_long_line_is_not_shown_whole(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("," * 10_000)
    with pytest.raises(ValueError, match=r"got ',{40}\.\.\.'$"):
        read(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "rows.txt")
