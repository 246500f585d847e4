"""Active messages of a service: what arrives goes to the handler of its kind, or is refused."""

import struct

import pytest

from pycollectives import _testing

EMPTY, NUMBER, NUMBERS, UNKNOWN = range(4)
LONGEST_TAIL = (64 - 8 - 8) // 4

delivered = _testing.delivered


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (EMPTY, b"", "empty from 3"),
        (NUMBER, struct.pack("q", -7), "number -7"),
        (NUMBERS, struct.pack("Q", 5), "numbers 5"),
        (NUMBERS, struct.pack("Q2i", 5, 6, -7), "numbers 5, 6, -7"),
        (
            NUMBERS,
            struct.pack(f"Q{LONGEST_TAIL}i", 5, *range(LONGEST_TAIL)),
            "numbers 5, " + ", ".join(map(str, range(LONGEST_TAIL))),
        ),
    ],
)
def test_delivered(kind, body, expected):
    assert delivered(kind, body) == expected


@pytest.mark.parametrize(
    ("kind", "length"),
    [
        (EMPTY, 1),
        (NUMBER, 0),
        (NUMBER, 7),
        (NUMBER, 9),
        (NUMBERS, 4),
        (NUMBERS, 13),
        (NUMBERS, 8 + 4 + 4 * LONGEST_TAIL),
    ],
)
def test_wrong_length(kind, length):
    with pytest.raises(RuntimeError, match="a message has the wrong length"):
        delivered(kind, bytes(length))


def test_unknown_kind():
    with pytest.raises(RuntimeError, match="a message of unknown kind 3"):
        delivered(UNKNOWN, b"")
