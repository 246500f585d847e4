"""Broadcast tensors and the state of the wrapped optimizer from rank 0 when an optimizer is created."""

from __future__ import annotations

import hashlib
import io
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..partial_reduce.means import reduce_on_all_ranks
from .buckets import fused
from .parameters import FlatTensors, dtype_name, parameters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch.optim.lr_scheduler import LRScheduler

    from ..communicator import Communicator
    from ..support.deadline import Deadline
    from ..support.typing import Array

CHUNK = 25 * 2**20
"""Approximate bytes per broadcast."""


def broadcast_tensors(comm: Communicator, tensors: Iterable[torch.Tensor], deadline: Deadline) -> None:
    """Copy tensors of any dtype from the root to all ranks; collective."""
    for group in fused(tensors, CHUNK):
        flat = FlatTensors(group, group[0].dtype)
        flat.gather()
        _broadcast(comm, flat.flat.view(torch.uint8).numpy(), deadline)
        flat.scatter()  # also on the root, which may replace a dead one and get its values


def in_flat_arrays(tensors: Iterable[torch.Tensor]) -> list[Array]:
    """Return copies of tensors of any dtype, as arrays of bytes."""
    arrays = []
    for group in fused(tensors, CHUNK):
        flat = FlatTensors(group, group[0].dtype)
        flat.gather()
        arrays.append(flat.flat.view(torch.uint8).numpy())
    return arrays


def from_flat_arrays(tensors: Iterable[torch.Tensor], arrays: Iterable[Array]) -> None:
    """Set tensors to the values that `in_flat_arrays` copied from tensors of the same shapes and dtypes."""
    for group, array in zip(fused(tensors, CHUNK), arrays, strict=True):
        flat = FlatTensors(group, group[0].dtype)
        flat.flat.view(torch.uint8).numpy()[...] = array
        flat.scatter()


def root_of(comm: Communicator) -> int:
    """Return the rank that sends the state: 0, or the lowest live rank."""
    return comm.members[0]


def _broadcast(comm: Communicator, data: Array, deadline: Deadline) -> int:
    """Copy bytes from the root to all ranks; return the root. If the root dies, the next root sends its own bytes."""
    while True:
        sender = _send(comm, data, root_of(comm), deadline)
        if sender is not None:
            return sender


def _send(comm: Communicator, data: Array, root: int, deadline: Deadline) -> int | None:
    """Copy bytes from `root` to all ranks; return the sender, or None, on all ranks, if the sender died first."""
    sent = np.zeros(data.nbytes + 8, np.uint8)  # bytes plus zeros are the same bits
    if comm.rank == root:
        sent[:-8] = data.view(np.uint8).reshape(-1)
        sent[-8:] = np.array([root + 1]).view(np.uint8)
    reduce_on_all_ranks(comm, sent, "SUM", deadline.remaining(), caller="broadcast")
    sender = int(sent[-8:].view(np.int64)[0]) - 1
    if sender < 0:
        return None
    data.view(np.uint8).reshape(-1)[:] = sent[:-8]
    return sender


def _broadcast_bytes(comm: Communicator, data: bytes, deadline: Deadline) -> tuple[bytes, int]:
    """Return the root's bytes, and the root's rank; ignore the other ranks' bytes."""
    while True:
        length = np.array([len(data)], dtype=np.int64)
        root = _broadcast(comm, length, deadline)
        array = np.frombuffer(data, dtype=np.uint8).copy() if comm.rank == root else np.empty(length[0], dtype=np.uint8)
        if _send(comm, array, root, deadline) is not None:
            return array.tobytes(), root


class PackedState:
    """State and hyperparameters of an optimizer, as rank 0 sends them: tensors, and a pickle of the rest."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, first_group: int, schedulers: Sequence[LRScheduler] = ()
    ) -> None:
        """Pack the groups from `first_group` on, and schedulers if it is 0. `TypeError` if pickle fails."""
        groups = optimizer.param_groups[first_group:]
        parameters = parameters_of(groups)
        state = {key: optimizer.state[key] for key in _keys(optimizer.state, parameters, first_group)}
        file = io.BytesIO()
        pickler = _Pickler(file, parameters)
        try:
            of_schedulers = [scheduler.state_dict() for scheduler in schedulers if first_group == 0]
            pickler.dump((state, [_hyperparameters(group) for group in groups], optimizer.defaults, of_schedulers))
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
            raise TypeError(
                f"optimizer: its state, hyperparameters or schedulers cannot be sent to the other ranks ({error}): "
                "pass broadcast_state=False (without spares), and set them to the same values on all ranks"
            ) from None
        self.text = file.getvalue()
        self.tensors = pickler.tensors

    def signature(self) -> dict[str, str | int | None]:
        return _signature(self.text)


def _signature(text: bytes) -> dict[str, str | int | None]:
    return {"state": hashlib.sha256(text).hexdigest()}


def _keys(state: Mapping[Any, Any], parameters: Sequence[torch.Tensor], first_group: int) -> list[Any]:
    """Return the parameters' keys in `state`; if `first_group` is 0, also the keys that are not tensors."""
    known = set(map(id, parameters))
    return [key for key in state if (id(key) in known if isinstance(key, torch.Tensor) else first_group == 0)]


def _hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


class _Pickler(pickle.Pickler):
    """Writes a parameter as its number, and any other tensor as its shape, strides, dtype and device type."""

    def __init__(self, file: io.BytesIO, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(file)
        self._parameters = {id(parameter): number for number, parameter in enumerate(parameters)}
        self._places: dict[int, int] = {}
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) in self._parameters:
            return ("parameter", self._parameters[id(value)])
        place = self._places.setdefault(id(value), len(self.tensors))
        if place == len(self.tensors):
            _check(value)
            self.tensors.append(value)
        stride = torch.empty_like(value, device="meta").stride()
        return ("tensor", place, tuple(value.shape), stride, value.dtype, value.device.type)


def _check(tensor: torch.Tensor) -> None:
    kind = type(tensor)
    is_plain = kind in (torch.Tensor, torch.nn.Parameter) and not tensor.is_sparse
    if not is_plain or tensor.device.type not in ("cpu", "cuda"):
        what = f"{kind.__name__} {tuple(tensor.shape)} {dtype_name(tensor.dtype)} on {tensor.device}"
        raise TypeError(f"expected dense tensors in memory of the host or of a CUDA device, got {what}")


class _Unpickler(pickle.Unpickler):
    def __init__(self, text: bytes, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__(io.BytesIO(text))
        self._parameters = parameters
        self.tensors: dict[int, torch.Tensor] = {}

    def persistent_load(self, identity: Any) -> torch.Tensor:
        kind, place, *like = identity
        if kind == "parameter":
            return self._parameters[place]
        if place not in self.tensors:
            shape, stride, dtype, device = like
            self.tensors[place] = torch.empty_strided(shape, stride, dtype=dtype, device=self._device(device))
        return self.tensors[place]

    def _device(self, kind: str) -> torch.device:
        """Return this rank's device of that kind, which rank 0 may not have: its parameters' or the default one."""
        own = (parameter.device for parameter in self._parameters if parameter.device.type == kind)
        return next(own, torch.device(kind))


class ReceivedState:
    """The state that a rank unpickles from rank 0's text; its tensors have no values yet."""

    def __init__(
        self, text: bytes, optimizer: torch.optim.Optimizer, first_group: int, schedulers: Sequence[LRScheduler] = ()
    ) -> None:
        """Unpickle the state, without changing the optimizer."""
        self._text = text
        self._optimizer = optimizer
        self._schedulers = schedulers
        self._first_group = first_group
        unpickler = _Unpickler(text, parameters_of(optimizer.param_groups[first_group:]))
        self._state, self._groups, self._defaults, self._of_schedulers = unpickler.load()
        self.tensors = [tensor for _, tensor in sorted(unpickler.tensors.items())]

    def signature(self) -> dict[str, str | int | None]:
        return _signature(self._text)

    def use(self) -> None:
        """Install the received state in the optimizer and its schedulers."""
        groups = self._optimizer.param_groups[self._first_group :]
        state = self._optimizer.state
        for key in _keys(state, parameters_of(groups), self._first_group):
            del state[key]
        state.update(self._state)
        self._optimizer.defaults = self._defaults
        for group, received in zip(groups, self._groups, strict=True):
            _replace_hyperparameters(group, received)
        for scheduler, received in zip(self._schedulers, self._of_schedulers, strict=False):  # none with a later group
            scheduler.load_state_dict(received)


@torch.no_grad()
def _replace_hyperparameters(group: dict[str, Any], received: dict[str, Any]) -> None:
    for key in _hyperparameters(group).keys() - received.keys():
        del group[key]
    for key, value in received.items():
        local = group.get(key)
        if isinstance(local, torch.Tensor) and isinstance(value, torch.Tensor) and local.shape == value.shape:
            local.copy_(value)  # keeps the tensor, such as a learning rate, which the program may change later
        else:
            group[key] = value


def broadcast_state(
    comm: Communicator,
    call: str,
    optimizer: torch.optim.Optimizer,
    packed: PackedState | None,
    first_group: int,
    schedulers: Sequence[LRScheduler],
    deadline: Deadline,
) -> None:
    """Send the packed state and hyperparameters of rank 0 to all ranks; collective.

    MismatchError if another rank cannot unpickle them, for example because it lacks a class. That rank raises its own
    error.
    """
    text, root = _broadcast_bytes(comm, b"" if packed is None else packed.text, deadline)
    sent = packed if comm.rank == root else None
    state = comm.agree(call, lambda: sent or ReceivedState(text, optimizer, first_group, schedulers))
    broadcast_tensors(comm, state.tensors, deadline)
    if isinstance(state, ReceivedState):
        state.use()
