"""Names of reductions."""

import pytest

from pycollectives.support.operations import checked_op


@pytest.mark.parametrize(("text", "name"), [("SUM", "SUM"), ("sum", "SUM"), ("avg", "AVG"), ("Max", "MAX")])
def test_texts(text, name):
    assert checked_op(text) == name


def test_no_reduction():
    with pytest.raises(ValueError, match="got 'mean'"):
        checked_op("mean")
