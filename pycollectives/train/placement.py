"""The place where a job computes, the host or a CUDA device per rank, and how methods access its arrays."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from .models import MODELS
from .synchronizers import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..communicator import Communicator
    from ..torch.means import Memory
    from .models.base import Model
    from .settings import Settings


@dataclass(frozen=True)
class Placement:
    """The place where one rank computes."""

    device: str = "cpu"  # as PyTorch names it, with the number of a CUDA device: "cpu", "cuda:1"
    # of the arrays that methods receive; "staged": arrays on the host, copied from and to the device
    memory: Memory = "host"
    why_staged: str = ""  # the reason for "staged"; otherwise empty

    @classmethod
    def agreed(cls, settings: Settings, comm: Communicator) -> Placement:
        """Choose where this rank computes, and compare all ranks' choices; collective. All have the same settings.

        Raise ValueError if the device cannot be used, or the model cannot compute on it. Raise MismatchError if only
        some ranks copy arrays through the host.
        """
        if settings.device == "cpu":
            return cls()
        local_rank = _local_rank(comm.mpi_comm)
        return comm.agree("train", lambda: cls._found(settings, local_rank))

    @classmethod
    def _found(cls, settings: Settings, local_rank: int) -> Placement:
        model = MODELS.find(settings.model)
        if not getattr(model, "runs_on_devices", False):
            raise ValueError(
                f"device {settings.device}: model {settings.model.name!r} computes with NumPy, on the host: choose a "
                "PyTorch model, or the device cpu"
            )
        device = _device(settings.device, local_rank)
        why = METHODS.find(settings.method).why_staged()  # type: ignore[attr-defined]
        return cls(device, "staged" if why else "device", why)

    def signature(self) -> dict[str, str]:
        """Return the values that must be the same on all ranks, without the device's number."""
        return {"memory": self.memory}

    def place(self, model: Model) -> None:
        """Move a model to this device and kind of memory."""
        if self.memory != "host":
            model.move_to(self.device, self.memory)  # type: ignore[attr-defined]

    def in_use(self) -> contextlib.AbstractContextManager[Any]:
        """Make the device PyTorch's current one, so that pinned memory creates no context on the first device."""
        if self.device == "cpu":
            return contextlib.nullcontext()
        import torch

        device: contextlib.AbstractContextManager[Any] = torch.cuda.device(self.device)
        return device

    def announce(self) -> None:
        """Print on stderr where rank 0 computes, if not on the host."""
        if self.memory == "staged":
            how = f"weights and gradients are staged through the host: {self.why_staged}"
        else:
            how = "weights and gradients stay there"
        if self.memory != "host":
            print(f"Rank 0 computes on {self.device}; {how}.", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        """Return the kind of device, the same on all ranks, and whether its arrays are staged through the host."""
        kind, _, _ = self.device.partition(":")
        return f"{kind}, staged through the host" if self.memory == "staged" else kind


def _local_rank(comm: MPI.Comm) -> int:
    """Return the number of this rank on its machine; collective."""
    machine = comm.Split_type(MPI.COMM_TYPE_SHARED)
    rank: int = machine.rank
    machine.Free()
    return rank


def _device(name: str, local_rank: int) -> str:
    """Return the name of a rank's CUDA device, with the device's number."""
    count = _count_devices(name)
    _, _, number = name.partition(":")
    if number and int(number) >= count:
        raise ValueError(f"device {name}: PyTorch sees {count} CUDA devices here, cuda:0 to cuda:{count - 1}")
    return f"cuda:{int(number) if number else local_rank % count}"


def _count_devices(name: str) -> int:
    import torch

    if not torch.backends.cuda.is_built():
        raise ValueError(f"device {name}: PyTorch {torch.__version__} was built without CUDA")
    if not torch.cuda.is_available() or not torch.cuda.device_count():
        why = _why(torch.cuda.init)
        raise ValueError(f"device {name}: PyTorch {torch.__version__} cannot use a CUDA device here{why}")
    count: int = torch.cuda.device_count()
    return count


def _why(init: Callable[[], None]) -> str:
    """Return the reason why PyTorch cannot use CUDA; empty if it can."""
    try:
        init()
    except Exception as error:  # of several kinds
        return f": {error}"
    return ""
