"""Training whose methods receive arrays that differ from the model's, as for a model on a device."""

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
    """Make jobs in the block compute on the host, and give their methods arrays of that kind.

    Tensors of "device" are on the host, as are their consumers; NumPy refuses them, as it refuses tensors on a device.
    """

    def refused(*arguments: Any, **options: Any) -> NoReturn:
        raise TypeError("NumPy cannot convert a tensor on a device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(means, "DeviceMean", means.HostMean)
        if memory == "device":
            patch.setattr(torch.Tensor, "__array__", refused)
        patch.setattr(Placement, "agreed", classmethod(lambda cls, settings, comm: cls("cpu", memory)))
        yield
