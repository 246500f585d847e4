"""Give all replicas of a model the initial parameters and state of rank 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..agreement.consistency import shortened
from .broadcast import (
    PackedState,
    ReceivedState,
    broadcast_state,
    broadcast_tensors,
    from_flat_arrays,
    in_flat_arrays,
)
from .parameters import LONGEST, Signature, in_words, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch.optim.lr_scheduler import LRScheduler

    from ..communicator import Communicator
    from ..support.deadline import Deadline


class InitialState:
    """Broadcast the initial state from rank 0: parameters if `broadcast` is set, the rest if `with_state` is set.

    The rest is the model's buffers, and the state of the optimizer and its schedulers. If `with_state` is None, it is
    the same as `broadcast`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        comm: Communicator,
        model: torch.nn.Module | None,
        schedulers: Sequence[LRScheduler],
        broadcast: bool,
        with_state: bool | None,
        caller: str,
    ) -> None:
        self._optimizer = optimizer
        self._comm = comm
        self._model = model
        self._schedulers = schedulers
        self._broadcast = broadcast
        self._with_state = broadcast if with_state is None else with_state
        self._caller = caller
        self._packed: PackedState | None = None
        self._membership = comm._context.membership

    def signature(
        self,
        parameters: list[torch.Tensor],
        name_of: Callable[[torch.Tensor], str],
        options: Mapping[str, str | int | None],
    ) -> Signature:
        """Return the properties that must be the same on all ranks."""
        frozen, buffers = self._of_the_model(parameters)
        groups = " + ".join(str(len(group["params"])) for group in self._optimizer.param_groups)
        return Signature.of(
            parameters,
            name_of,
            optimizer=type(self._optimizer).__name__,
            groups=shortened(groups, LONGEST),
            schedulers=" + ".join(type(scheduler).__name__ for scheduler in self._schedulers) or None,
            model=None if self._model is None else in_words([*frozen, *buffers]),
            broadcast=self._broadcast,
            broadcast_state=self._with_state,
            **options,
        )

    def pack(self, first_group: int = 0) -> None:
        """Pack the state of the groups from `first_group` on, if this rank may broadcast this state."""
        may_send = self._comm.rank == 0 or self._comm.on_failure == "continue"
        if self._with_state and self._comm.size > 1 and may_send and not self.comes_later:
            self._packed = PackedState(self._optimizer, first_group, self._schedulers)

    def take_from_rank_0(self, deadline: Deadline, first_group: int = 0) -> list[torch.Tensor]:
        """Send rank 0's parameters and packed state to all ranks; return this rank's parameters; collective."""
        parameters = parameters_of(self._optimizer.param_groups[first_group:])
        frozen, buffers = self._of_the_model(parameters) if first_group == 0 else ([], [])
        self.broadcast_parameters([*parameters, *frozen], deadline)
        if self._with_state and self._comm.size > 1:
            broadcast_tensors(self._comm, buffers, deadline)
            replica = (self._optimizer, self._packed, first_group, self._schedulers)
            broadcast_state(self._comm, self._caller, *replica, deadline)
            self._packed = None
        return parameters

    # ------------------------------------------------------------------------------------------------ newcomers

    @property
    def comes_later(self) -> bool:
        """Whether this rank replaces a dead one and gets its state later, from a survivor, by `share`."""
        return self._membership is not None and self._membership.restores

    def share(self, provide: Callable[[], Any], restore: Callable[[Any], object]) -> None:
        """Share the state with ranks that replace dead ones. On such a rank, restore the state of a survivor."""
        if self._membership is not None and self._membership.replaces:
            self._membership.state(provide, restore)

    def end_sharing(self, provide: Callable[[], Any]) -> None:
        """Stop sharing the state with ranks that replace dead ones."""
        if self._membership is not None:
            self._membership.drop_state(provide)

    def provide(self) -> dict[str, Any]:
        """Return the parameters, buffers and state, for a rank that replaces a dead one."""
        packed = PackedState(self._optimizer, 0, self._schedulers)
        return {
            "model": in_flat_arrays(self._every_tensor()),
            "optimizer": packed.text,
            "state": in_flat_arrays(packed.tensors),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Load the state that `provide` returned on a survivor."""
        from_flat_arrays(self._every_tensor(), state["model"])
        received = ReceivedState(state["optimizer"], self._optimizer, 0, self._schedulers)
        from_flat_arrays(received.tensors, state["state"])
        received.use()

    def _every_tensor(self) -> list[torch.Tensor]:
        parameters = parameters_of(self._optimizer.param_groups)
        frozen, buffers = self._of_the_model(parameters)
        return [*parameters, *frozen, *buffers]

    def broadcast_parameters(self, parameters: list[torch.Tensor], deadline: Deadline) -> None:
        """Send rank 0's parameters to all ranks, if `broadcast` is set; collective."""
        if self._broadcast:
            broadcast_tensors(self._comm, parameters, deadline)

    def _of_the_model(self, parameters: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return the model's parameters that are not in `parameters`, and its buffers."""
        if self._model is None:
            return [], []
        ours = set(map(id, parameters))
        return [other for other in self._model.parameters() if id(other) not in ours], list(self._model.buffers())
