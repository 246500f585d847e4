"""PyTorch tensors on a simulated device, for an `EagerMean` of them.

PyTorch cannot use the simulated device, whose addresses are not addresses of the host. Tensors therefore stay on the
host here, and have a copy on the device. They are copied there late, on a stream, before the copy is contributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from device_programs import OnDevice

from pycollectives.torch import means

if TYPE_CHECKING:
    import pytest
    from devices import Simulated

    import pycollectives as pc


def use_tensors_on(machine: Simulated, patch: pytest.MonkeyPatch) -> None:
    """Contribute gradients on the host from a simulated device, and read results from there."""

    class SimulatedMean(means.DeviceMean):
        def __init__(self, comm: pc.Communicator, like: torch.Tensor, **options: Any) -> None:
            self._double = OnDevice(machine, like.numpy().copy())
            super().__init__(comm, self._double, **options)

        def contribute(self, gradient: torch.Tensor) -> Any:
            self._double.write(gradient.numpy())
            return super().contribute(self._double)

        def close(self) -> None:
            super().close()
            self._free()

        def abort(self) -> int:
            discarded = super().abort()
            self._free()
            return discarded

        def _free(self) -> None:
            if self._double is not None:
                self._double.free()
                self._double = None

    patch.setitem(means.MEANS, "device", SimulatedMean)
    patch.setattr(means, "_tensor_on", lambda result, device: torch.from_numpy(result.to_host().copy()))
