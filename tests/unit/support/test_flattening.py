"""Arrays that are fused into one."""

import numpy as np
import pytest

import pycollectives as pc


def test_flatten_copies_what_is_apart():
    first, second = np.arange(6.0).reshape(2, 3), np.array(7.0)
    flat, views = pc.flatten([first, second, np.empty((0, 2))])
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7]
    assert [view.shape for view in views] == [(2, 3), (), (0, 2)]
    assert all(np.shares_memory(view, flat) for view in views[:2])
    assert not np.shares_memory(flat, first)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_flatten_copies_nothing_that_lies_together(dtype):
    pytest.importorskip("ml_dtypes")  # by which NumPy knows bfloat16
    whole = np.ones(20, dtype)
    parts = [whole[3:9].reshape(2, 3), whole[9:10], whole[10:15]]
    flat, _ = pc.flatten(parts)
    assert np.shares_memory(flat, whole)
    assert flat.shape == (12,)
    flat[:] = 5
    assert whole.astype(float).tolist() == [1.0] * 3 + [5.0] * 12 + [1.0] * 5


def test_flatten_copies_what_lies_in_another_order_or_with_gaps():
    whole = np.arange(8.0)
    for parts in ([whole[4:], whole[:4]], [whole[:3], whole[4:]], [whole[::2], whole[1::2]]):
        flat, _ = pc.flatten(parts)
        assert flat.tolist() == np.concatenate(parts).tolist()
        assert not np.shares_memory(flat, whole)


def test_flatten_refuses():
    with pytest.raises(ValueError, match="at least one"):
        pc.flatten([])
    with pytest.raises(ValueError, match="float32, float64"):
        pc.flatten([np.ones(1), np.ones(1, "f4")])
    with pytest.raises(TypeError):
        pc.flatten([np.ones(1, object)])
    with pytest.raises(TypeError, match=r"pass its values\(\)"):
        pc.flatten({"weights": np.ones(2)})
    with pytest.raises(TypeError, match="several arrays, got one"):
        pc.flatten(np.ones(4))
