"""Arrays on this rank's CUDA device, by CuPy or PyTorch, whichever is installed."""

from __future__ import annotations

import abc
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from mpi4py import MPI

from pycollectives.support.native import core

from .arrays import HOST, Arrays, Place
from .errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

    Allreduce = Callable[[Any, Any], None]
    """Queue the sum over all ranks of the first array into the second; they may be the same."""


class DeviceArrays(abc.ABC):
    """Arrays of one library. Queued work is done in order, and is complete when `synchronize` returns.

    Arrays have one dimension, and their slices are views, as in NumPy.
    """

    name: ClassVar[str]

    def __init__(self, device: int) -> None:
        """`device`: its number."""
        self.device = device
        self.place = Place()  # replaced once the places of all ranks are known
        self._nccl: Allreduce | None = None

    @classmethod
    @abc.abstractmethod
    def why_not(cls) -> str:
        """Return why the library cannot be used here; empty if it can."""

    @classmethod
    @abc.abstractmethod
    def version(cls) -> str: ...

    @abc.abstractmethod
    def empty(self, count: int, dtype: DTypeLike) -> Any: ...

    @abc.abstractmethod
    def pinned(self, count: int, dtype: DTypeLike) -> NDArray[Any]:
        """Return pinned host memory, from which copies are fast."""

    @abc.abstractmethod
    def copy_in(self, array: Any, host: NDArray[Any]) -> None:
        """Queue a copy to the device; `host` must not change before it is complete."""

    @abc.abstractmethod
    def copy_out(self, host: NDArray[Any], array: Any) -> None:
        """Queued."""

    @abc.abstractmethod
    def scale(self, array: Any, factor: float) -> None:
        """Queue a multiplication in place."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all queued work is complete."""

    @abc.abstractmethod
    def why_no_nccl(self) -> str:
        """Return why NCCL is missing; empty if it is available."""

    @abc.abstractmethod
    def nccl_version(self) -> tuple[int, int]:
        """Return the version, if NCCL is available."""

    @abc.abstractmethod
    def make_nccl(self, comm: MPI.Comm) -> Allreduce:
        """Collective."""

    # --- The methods of `Arrays`

    def mirror(self, host: NDArray[Any]) -> Any:
        array = self.empty(host.size, host.dtype)
        self.upload(array, host)
        return array

    def upload(self, array: Any, host: NDArray[Any]) -> None:
        self.copy_in(array, host)
        self.synchronize()

    def download(self, array: Any) -> NDArray[Any]:
        if hasattr(array, "to_host"):  # a result of the library
            values: NDArray[Any] = array.to_host()
            return values
        host = np.empty(len(array), np.dtype(str(array.dtype).removeprefix("torch.")))
        self.copy_out(host, array)
        self.synchronize()
        return host

    def sample(self, array: Any, places: NDArray[np.int64]) -> NDArray[Any]:
        """Copy the values one by one, which needs no kernel."""
        host = np.empty(len(places), np.dtype(str(array.dtype).removeprefix("torch.")))
        for number, place in enumerate(places.tolist()):
            self.copy_out(host[number : number + 1], array[place : place + 1])
        self.synchronize()
        return host

    def nccl(self, comm: MPI.Comm) -> Allreduce:
        """Return NCCL's allreduce. The first call is collective; `comm` is the same in all calls."""
        if self._nccl is None:
            self._nccl = self.make_nccl(comm)
        return self._nccl


class CupyArrays(DeviceArrays):
    name = "CuPy"

    def __init__(self, device: int) -> None:
        super().__init__(device)
        import cupy
        import cupyx

        self._cupy, self._cupyx = cupy, cupyx
        cupy.cuda.Device(device).use()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._stream.use()  # arrays name this stream from now on

    @classmethod
    def why_not(cls) -> str:
        try:
            import cupy

            return "" if cupy.cuda.runtime.getDeviceCount() else "it finds no device"
        except Exception as error:  # CuPy raises its own exception for a missing driver
            return " ".join(str(error).split())

    @classmethod
    def version(cls) -> str:
        import cupy

        return f"CuPy {cupy.__version__}"

    def empty(self, count: int, dtype: DTypeLike) -> Any:
        return self._cupy.empty(count, dtype)

    def pinned(self, count: int, dtype: DTypeLike) -> NDArray[Any]:
        memory: NDArray[Any] = self._cupyx.empty_pinned(count, dtype)
        return memory

    def copy_in(self, array: Any, host: NDArray[Any]) -> None:
        array.set(host, stream=self._stream)

    def copy_out(self, host: NDArray[Any], array: Any) -> None:
        array.get(out=host, stream=self._stream)

    def scale(self, array: Any, factor: float) -> None:
        self._cupy.multiply(array, array.dtype.type(factor), out=array)

    def synchronize(self) -> None:
        self._stream.synchronize()

    def why_no_nccl(self) -> str:
        from cupy.cuda import nccl

        return "" if getattr(nccl, "available", True) else "this CuPy has none"

    def nccl_version(self) -> tuple[int, int]:
        from cupy.cuda import nccl

        version = nccl.get_version()  # 23203 is 2.32.3
        return version // 10000, version // 100 % 100

    def make_nccl(self, comm: MPI.Comm) -> Allreduce:
        from cupy.cuda import nccl

        unique = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
        communicator = nccl.NcclCommunicator(comm.size, unique, comm.rank)

        def allreduce(x: Any, out: Any) -> None:
            number = getattr(nccl, f"NCCL_{x.dtype.name.upper()}")
            communicator.allReduce(x.data.ptr, out.data.ptr, x.size, number, nccl.NCCL_SUM, self._stream.ptr)

        return allreduce


class TorchArrays(DeviceArrays):
    name = "PyTorch"

    def __init__(self, device: int) -> None:
        super().__init__(device)
        import torch

        self._torch, self._where = torch, torch.device("cuda", device)
        torch.cuda.set_device(device)
        self._stream = torch.cuda.Stream(device)
        torch.cuda.set_stream(self._stream)

    @classmethod
    def why_not(cls) -> str:
        try:
            import torch
        except ImportError as error:
            return str(error)
        return "" if torch.cuda.is_available() else f"version {torch.__version__} finds no device"

    @classmethod
    def version(cls) -> str:
        import torch

        return f"PyTorch {torch.__version__}"

    def empty(self, count: int, dtype: DTypeLike) -> Any:
        return self._torch.empty(count, dtype=self._dtype(dtype), device=self._where)

    def pinned(self, count: int, dtype: DTypeLike) -> NDArray[Any]:
        memory: NDArray[Any] = self._torch.empty(count, dtype=self._dtype(dtype), pin_memory=True).numpy()
        return memory

    def _dtype(self, dtype: DTypeLike) -> Any:
        return self._torch.from_numpy(np.empty(0, dtype)).dtype

    def copy_in(self, array: Any, host: NDArray[Any]) -> None:
        array.copy_(self._torch.from_numpy(host), non_blocking=True)

    def copy_out(self, host: NDArray[Any], array: Any) -> None:
        self._torch.from_numpy(host).copy_(array, non_blocking=True)

    def scale(self, array: Any, factor: float) -> None:
        array.mul_(factor)

    def synchronize(self) -> None:
        self._stream.synchronize()

    def why_no_nccl(self) -> str:
        import torch.distributed as dist

        return "" if dist.is_available() and dist.is_nccl_available() else "this PyTorch has none"

    def nccl_version(self) -> tuple[int, int]:
        major, minor, *_ = self._torch.cuda.nccl.version()
        return major, minor

    def make_nccl(self, comm: MPI.Comm) -> Allreduce:
        import torch.distributed as dist

        from pycollectives.train.torch_models.parallel import make_group

        if not dist.is_initialized():
            make_group(comm)
        group = dist.new_group(backend="nccl")

        def allreduce(x: Any, out: Any) -> None:
            if out is not x:
                out.copy_(x)
            dist.all_reduce(out, group=group)

        return allreduce


LIBRARIES: list[type[DeviceArrays]] = [CupyArrays, TorchArrays]


def arrays_on(device: str, comm: MPI.Comm) -> Arrays:
    """Return the arrays of a device; collective. RunError on all ranks without such devices or an array library."""
    return HOST if device == "cpu" else _on_devices(comm)


def _on_devices(comm: MPI.Comm) -> DeviceArrays:
    """Assign the devices of a node to its ranks, in rotation."""
    found = core.cuda_availability()
    if reasons := [reason for reason in comm.allgather(found["reason"]) if reason]:
        raise RunError(f"--device cuda: CUDA is off: {reasons[0]}")
    library = _library(comm)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    number = node.rank % len(found["devices"])
    node.Free()
    description = found["devices"][number]
    arrays = library(number)
    everywhere = Counter(comm.allgather((MPI.Get_processor_name(), description["pci_bus_id"])))
    arrays.place = Place("cuda", description["name"], library.version(), max(everywhere.values()))
    return arrays


def _library(comm: MPI.Comm) -> type[DeviceArrays]:
    """Return the first library that all ranks have."""
    reasons = {library.name: [why for why in comm.allgather(library.why_not()) if why] for library in LIBRARIES}
    for library in LIBRARIES:
        if not reasons[library.name]:
            return library
    said = "; ".join(f"{name}: {why[0]}" for name, why in reasons.items())
    raise RunError(f"--device cuda needs CuPy (pip install cupy-cuda13x) or a PyTorch with CUDA: {said}")
