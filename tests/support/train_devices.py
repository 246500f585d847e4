"""Training whose methods are given other arrays than those that a model computes with, as of one on a device."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import torch

from pycollectives.torch import means
from pycollectives.train.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pycollectives.torch.means import Memory


@contextlib.contextmanager
def arrays_in(memory: Memory) -> Iterator[None]:
    """Jobs in the block compute on the host, and their methods are given arrays of that kind.

    Tensors of "device" are the host's, and so is what takes them; NumPy does not, as it would not from a device.
    """

    def refused(*arguments: Any, **options: Any) -> NoReturn:
        raise TypeError("NumPy cannot convert a tensor on a device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(means, "DeviceMean", means.HostMean)
        if memory == "device":
            patch.setattr(torch.Tensor, "__array__", refused)
        patch.setattr(Placement, "agreed", classmethod(lambda cls, settings, comm: cls("cpu", memory)))
        yield
