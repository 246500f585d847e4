"""Batches that ranks take from one counter, so that fast ranks take more batches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import attrs
import torch
from torch.utils.data import Sampler

from ..arguments import LOCAL
from ..counter.arguments import CounterArguments
from ..counter.collective import SharedCounter
from ..support.validation import checked_integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

    from ..communicator import Communicator

COMPARED = ("examples", "batch_size", "shuffle", "seed", "drop_last")
"""Settings with which a later sampler must agree to continue."""


def _integer(what: str, at_least: int, at_most: int | None = None) -> Any:
    return attrs.field(kw_only=True, converter=partial(checked_integer, what, at_least=at_least, at_most=at_most))


def _truth(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{what}: expected True or False, got {value!r}")
    return value


def _shuffle(shuffle: bool) -> bool:
    return _truth("shuffle", shuffle)


def _drop_last(drop_last: bool) -> bool:
    return _truth("drop_last", drop_last)


@attrs.frozen
class SamplerArguments(CounterArguments):
    """The arguments of a sampler, which ranks compare when they make its counter."""

    examples: int = _integer("data_source: number of examples", 1)
    batch_size: int = _integer("batch_size", 1)
    shuffle: bool = attrs.field(kw_only=True, converter=_shuffle)
    seed: int = _integer("seed", 0, 1 << 63)
    drop_last: bool = attrs.field(kw_only=True, converter=_drop_last)
    state: dict[str, Any] | None = attrs.field(kw_only=True, metadata=LOCAL)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of all ranks in an epoch."""
        full, rest = divmod(self.examples, self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __attrs_post_init__(self) -> None:
        """Check the settings against each other and the state."""
        if self.batches_per_epoch == 0:
            raise ValueError(
                f"batch_size: with drop_last, expected at most {self.examples}, the number of examples; "
                f"got {self.batch_size}"
            )
        for name, saved in (self.state or {}).items():
            given = getattr(self, name, saved)
            if saved != given:
                raise ValueError(f"state: expected the state of a sampler with {name} {given}, got {saved}")


class SharedSampler(Sampler[list[int]]):
    """A batch sampler whose ranks take the next batch of an epoch when they need one; its creation is collective.

    With `torch.utils.data.DistributedSampler` an epoch takes as long as the slowest rank needs for an equal share. Here
    a rank that is twice as fast takes twice as many batches. Each example is in one batch of an epoch, on one rank.
    Call the optimizer's `flush` after each epoch: ranks take different numbers of steps, unless they wait for each
    other in each step, as under `policy="full"`.

    An epoch ends on a rank when the rank requests a batch and none is left. If the request returns a batch of the next
    epoch, the rank keeps this batch for that epoch. If an iteration is interrupted, even by `StallError`, the next
    iteration continues it, without the batches that a `DataLoader` has taken in advance. If a rank dies and other ranks
    continue, its last batches are lost. A rank that replaces a dead one calls `set_epoch`. A sampler has no length,
    since the number of a rank's batches is unknown.

    Parameters
    ----------
    data_source
        The data set, of the same length on all ranks.
    comm
        The communicator. Its ranks share the counter.
    batch_size
        Examples of a batch, 1 or more.
    shuffle
        Whether each epoch has its own order, which depends on `seed` and on the number of the epoch.
    seed
        Seed of the orders, the same on all ranks; 0 to 2^63.
    drop_last
        Whether to leave out the last batch of an epoch if it is not full.
    state
        To continue an earlier run: the result of `state_dict` on one of its ranks, passed on all ranks.
    timeout
        Seconds for each call, creation included; None for the communicator's default, `math.inf` for no limit.

    Attributes
    ----------
    counter
        The `SharedCounter` of the batches since the beginning of the first epoch.
    batches_per_epoch
        Number of batches of all ranks in an epoch.
    epoch
        The epoch of the next iteration over the sampler, from 0.

    Raises
    ------
    ValueError, TypeError
        An argument is invalid.
    MismatchError, StallError, ClosedError, RankFailedError
        As for the creation of a collective, and for `SharedCounter.fetch_add`.

    >>> import pycollectives as pc
    >>> from torch.utils.data import DataLoader
    >>> from pycollectives.testing import run_ranks
    >>> def program(comm):
    ...     sampler = pc.torch.SharedSampler(range(10), comm, batch_size=4)
    ...     return [batch.tolist() for batch in DataLoader(range(10), batch_sampler=sampler)]
    >>> batches = sum(run_ranks(2, program), [])
    >>> sorted(map(len, batches)), sorted(sum(batches, [])) == list(range(10))
    ([2, 4, 4], True)
    """

    def __init__(
        self,
        data_source: Sized,
        comm: Communicator,
        *,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        state: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:

        def checked() -> SamplerArguments:
            if state is not None and not (isinstance(state, dict) and state.keys() >= {"next", *COMPARED}):
                raise ValueError(f"state: expected the result of state_dict() of a SharedSampler, got {state!r}")
            return SamplerArguments(
                start=0 if state is None else state["next"],
                examples=len(data_source),
                batch_size=batch_size,
                shuffle=shuffle,
                seed=seed,
                drop_last=drop_last,
                state=state,
                timeout=timeout,
            )

        self.counter = SharedCounter.make(comm._context, checked, call="SharedSampler", timeout=timeout)
        self._settings = cast("SamplerArguments", self.counter._arguments)
        self.batches_per_epoch = self._settings.batches_per_epoch
        self.epoch = self._settings.start // self.batches_per_epoch
        self._kept: int | None = None  # a number that this rank has taken, of a later epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over this rank's batches of the current epoch: lists of indices of examples."""
        epoch, of = self.epoch, self._settings
        order = self._order(epoch)
        while True:
            number = self.counter.fetch_add(timeout=of.timeout) if self._kept is None else self._kept
            its_epoch, place = divmod(number, self.batches_per_epoch)
            self._kept = number if its_epoch > epoch else None
            if its_epoch > epoch:
                self.epoch = epoch + 1
                return
            if its_epoch == epoch:
                yield order[place * of.batch_size : (place + 1) * of.batch_size]

    def set_epoch(self, epoch: int) -> None:
        """Set the `epoch` of the next iteration, on a rank that replaces a dead one; at least 0."""
        self.epoch = checked_integer("epoch", epoch, at_least=0)

    def state_dict(self) -> dict[str, Any]:
        """Return the argument `state` of a later sampler: the batch with which it continues, and the settings.

        Between two epochs of this rank, that batch is the first of the next epoch. In an epoch, it is the first batch
        that no rank has taken, so batches in progress are lost. The result differs between ranks: save it on one rank.
        """
        of = self._settings
        is_between = self._kept is not None
        first = self.epoch * self.batches_per_epoch if is_between else self.counter.read(timeout=of.timeout)
        return {"next": first, **{name: getattr(of, name) for name in COMPARED}}

    def _order(self, epoch: int) -> list[int]:
        if not self._settings.shuffle:
            return list(range(self._settings.examples))
        generator = torch.Generator()
        generator.manual_seed((self._settings.seed + epoch) % (1 << 63))
        order: list[int] = torch.randperm(self._settings.examples, generator=generator).tolist()
        return order
