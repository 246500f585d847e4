"""Active messages of the engine itself: one that has not the length of its kind is refused."""

import struct

import pytest

from pycollectives import _testing

KINDS = {  # by kind: bytes; of those with a text, without it
    "digest": 32,
    "verdict": 32,
    "texts": 32,
    "all texts": 32,
    "handed down": 32,
    "closed": 24,
    "all closed": 24,
    "counts": 24,
    "count again": 24,
    "end": 24,
    "inquiry": 32,
    "answer": 32,
    "gave up": 16,
    "left": 16,
}
WITH_TEXT = ("texts", "all texts", "handed down")


def receive(kind, length):
    header = struct.pack("2I", 0, list(KINDS).index(kind))
    _testing.receive((header + bytes(64))[:length])


def text_of_a_step(text, length):
    """All texts of a comparison that rank 1 has not begun, in one message."""
    return struct.pack("2I2Q2I", 0, list(KINDS).index("all texts"), 1, length, 0, 0) + text


@pytest.mark.parametrize("kind", KINDS)
def test_too_short(kind):
    with pytest.raises(RuntimeError, match=f"a message has the wrong length: {KINDS[kind] - 1} bytes"):
        receive(kind, KINDS[kind] - 1)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in WITH_TEXT])
def test_too_long(kind):
    with pytest.raises(RuntimeError, match=f"a message has the wrong length: {KINDS[kind] + 1} bytes"):
        receive(kind, KINDS[kind] + 1)


@pytest.mark.parametrize("length", range(8))
def test_without_a_header(length):
    with pytest.raises(RuntimeError, match=f"a message has the wrong length: {length} bytes"):
        _testing.receive(bytes(length))


def test_more_text_than_announced():
    with pytest.raises(RuntimeError, match="a message has the wrong length"):
        _testing.receive(text_of_a_step(b"xxxx", 3))


@pytest.mark.parametrize("given", [0, 2])
def test_texts_that_are_cut_off(given):
    of_both_ranks = struct.pack("3I", 0, 1, 3) + b"xxx"[:given]
    with pytest.raises(RuntimeError, match="the texts of a comparison are cut off"):
        _testing.receive(text_of_a_step(of_both_ranks, len(of_both_ranks)))
    whole = struct.pack("3I", 0, 1, 3) + b"xxx"
    _testing.receive(text_of_a_step(whole, len(whole)))
