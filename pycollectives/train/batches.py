"""Choose each rank's examples in a step from the seed and the step: a resumed run takes the same examples."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .datasets.base import Dataset


class Batches:
    """One rank's share of the batches. Each epoch is a permutation of the examples; an incomplete batch is left out.

    `batch` is the number of examples of all ranks in a step, a multiple of `ranks`. `seed` is for the permutations.
    """

    def __init__(self, dataset: Dataset, batch: int, *, rank: int, ranks: int, seed: int) -> None:
        examples = len(dataset.train[0])
        if batch < ranks or batch % ranks or batch > examples:
            raise ValueError(
                f"batch: expected a multiple of {ranks}, the number of ranks, and at most {examples}, the number of "
                f"examples; got {batch}"
            )
        self._dataset, self._seed, self._rank, self._ranks = dataset, seed, rank, ranks
        self._shape = (examples // batch, ranks, batch // ranks)
        self.batch, self.steps_per_epoch = batch, examples // batch
        self._epoch, self._chosen = -1, np.empty(self._shape, np.intp)

    def __call__(self, number: int) -> tuple[NDArray[Any], ...]:
        """Return the arrays of this rank's examples in step `number`."""
        chosen = np.array_split(self._of_all(number).ravel(), self._ranks)[self._rank]
        return tuple(array[chosen] for array in self._dataset.train)

    def of_place(self, number: int, place: int) -> tuple[NDArray[Any], ...]:
        """Return the arrays that the rank `place`, among the initial number of ranks, takes in step `number`."""
        return tuple(array[self._of_all(number)[place]] for array in self._dataset.train)

    def among(self, *, rank: int, ranks: int) -> Batches:
        """Return the same batches for fewer ranks, whose shares differ by at most one example."""
        dealt = copy.copy(self)
        dealt._rank, dealt._ranks = rank, ranks
        return dealt

    def work(self, steps: int) -> NDArray[np.float64]:
        """Return the length of each rank's longest example in each step, shape (ranks, steps), scaled to mean 1."""
        lengths = self._dataset.lengths
        if lengths is None:
            raise ValueError("load 'length': expected data whose examples have lengths, such as 'sequences'")
        longest = np.stack([lengths[self._of_all(number)].max(axis=1) for number in range(steps)], axis=1)
        return np.asarray(longest / longest.mean(), dtype=np.float64)

    def _of_all(self, number: int) -> NDArray[np.intp]:
        """Return the examples of all ranks in a step, shape (ranks, batch / ranks), for the initial number of ranks."""
        epoch, step = divmod(number, self.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch, self._chosen = epoch, self._draw(np.random.default_rng((self._seed, epoch)))
        chosen: NDArray[np.intp] = self._chosen[step]
        return chosen

    def _draw(self, random: np.random.Generator) -> NDArray[np.intp]:
        examples = random.permutation(len(self._dataset.train[0]))[: self._chosen.size]
        if self._dataset.lengths is None:
            return examples.reshape(self._shape)
        return of_similar_length(self._dataset.lengths, examples, self._shape[-1], random).reshape(self._shape)


def of_similar_length(
    lengths: NDArray[np.int64], examples: NDArray[np.intp], size: int, random: np.random.Generator
) -> NDArray[np.intp]:
    """Return batches, shape (batches, size), in random order, each with examples of neighboring lengths.

    Buckets (eager-SGD, section 2.1): there is little padding, and a batch takes as long as its longest example.
    """
    ordered = examples[np.argsort(lengths[examples], kind="stable")]
    return random.permutation(ordered.reshape(-1, size))
