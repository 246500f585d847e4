"""The interface of every data set."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


class Examples(Protocol):
    """An array whose first axis is the examples, or an object that makes examples when it is indexed."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of examples, then the shape of each example."""

    def __len__(self) -> int:
        """Return the number of examples."""

    def __getitem__(self, which: NDArray[np.intp] | slice, /) -> NDArray[Any]:
        """Return the examples of an array of indices, or of a slice."""


@dataclass(frozen=True)
class Dataset:
    """Examples to train on and to validate with, the same on every rank.

    The arrays of a tuple are parallel: a batch is `tuple(array[indices] for array in dataset.train)`. The last array
    has the labels, or the values to predict.

    `lengths` are the lengths of the training examples if the work depends on them. Batches then have examples of
    similar lengths.
    """

    train: tuple[Examples, ...]
    validation: tuple[Examples, ...]
    lengths: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Refuse arrays that are not parallel."""
        for part, arrays in (("train", self.train), ("validation", self.validation)):
            if len({len(array) for array in arrays}) != 1 or not len(arrays[0]):
                lengths = [len(array) for array in arrays]
                raise ValueError(f"{part}: expected arrays of the same number of examples, at least 1, got {lengths}")

    def check_inputs(self, model: str, expected: str, axes: tuple[int, ...]) -> None:
        """Raise ValueError if a model cannot take these examples: arrays with `axes` axes, described by `expected`."""
        found = tuple(len(array.shape) for array in self.train)
        if found != axes:
            shapes = ", ".join(str(array.shape) for array in self.train)
            raise ValueError(f"model {model!r}: expected data of {expected}; got arrays of the shapes {shapes}")

    @property
    def classes(self) -> int:
        """The number of classes, whose labels start at 0. Raise ValueError if the labels are not integers."""
        if self.train[-1][:1].dtype.kind not in "iu":
            raise ValueError("expected data with classes, since the model classifies; got labels that are not integers")
        return 1 + max(int(part[-1][:].max()) for part in (self.train, self.validation))

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Values that identify each part: the shapes of its arrays, and a hash of its labels."""
        return {"train": _fingerprint(self.train), "validation": _fingerprint(self.validation)}


def _fingerprint(arrays: tuple[Examples, ...]) -> str:
    """Return shapes and a hash of integer labels. Floats are not hashed: their last bits depend on the processor."""
    shapes = ", ".join(str(array.shape) for array in arrays)
    if arrays[-1][:1].dtype.kind not in "iu":
        return shapes
    labels = np.asarray(arrays[-1][:], "<i8").tobytes()
    return f"{shapes}, labels {hashlib.blake2b(labels, digest_size=6).hexdigest()}"


def chunks(examples: tuple[Examples, ...], size: int) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield the examples in order, up to `size` at a time."""
    for start in range(0, len(examples[0]), size):
        yield tuple(array[start : start + size] for array in examples)
