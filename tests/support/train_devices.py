"""Training whose methods are given other arrays than those that a model computes with, as of one on a device."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from pycollectives.interop import means
from pycollectives.train.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pycollectives.interop.means import Memory


@contextlib.contextmanager
def arrays_in(memory: Memory) -> Iterator[None]:
    """Jobs in the block compute on the host, and their methods are given arrays of that kind.

    Tensors of "device" are the host's, and so is what takes them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(means, "DeviceMean", means.HostMean)
        patch.setattr(Placement, "agreed", classmethod(lambda cls, settings, comm: cls("cpu", memory)))
        yield
