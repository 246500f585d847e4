"""CIFAR-10: 60 000 color images of 32 x 32 pixels in ten classes, from the files of its "binary version".

A record has 3 073 bytes: a label and 3 x 1 024 pixels, red, green and blue. The files are mapped, and each batch is
normalized when it is used. The ranks of a node share one copy of 184 MB in the page cache. Images are not cropped or
flipped, so that every method trains on the same images in the same order.

A. Krizhevsky: Learning multiple layers of features from tiny images, 2009.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import Dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
RECORD = 1 + 3 * 32 * 32
MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32).reshape(3, 1, 1)  # of the training images, by channel
DEVIATION = np.array([0.2470, 0.2435, 0.2616], np.float32).reshape(3, 1, 1)


class Images:
    """An array of shape (count, 3, 32, 32) over mapped files with the same number of records, normalized by channel."""

    def __init__(self, files: Sequence[NDArray[np.uint8]]) -> None:
        self._files = files
        self._per_file = len(files[0])
        self.shape = (len(files) * self._per_file, 3, 32, 32)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: NDArray[np.intp] | slice, /) -> NDArray[np.float32]:
        """Return the images of an array of indices, or of a slice."""
        file, record = np.divmod(np.arange(len(self))[which], self._per_file)
        pixels = np.empty((len(file), RECORD - 1), np.float32)
        for number, records in enumerate(self._files):
            pixels[file == number] = records[record[file == number], 1:]
        images = pixels.reshape(-1, 3, 32, 32)
        images *= 1 / (255 * DEVIATION)
        images -= MEAN / DEVIATION
        return images


def cifar10(*, folder: str = "") -> Dataset:
    """Return normalized float32 images of shape (n, 3, 32, 32), and labels: 50 000 for training, 10 000 for validation.

    Each channel has mean 0 and variance 1. `folder` has data_batch_1.bin to data_batch_5.bin and test_batch.bin; by
    default, the environment variable PYC_CIFAR10 names the folder.
    """
    folder = folder or os.environ.get("PYC_CIFAR10", "")
    if not folder:
        raise FileNotFoundError(f"CIFAR-10: {what_to_do()}")
    *train, test = [records_of(Path(folder) / name) for name in (*TRAIN, TEST)]
    counts = [len(records) for records in (*train, test)]
    if len({*counts}) != 1:
        raise ValueError(f"CIFAR-10: expected files with the same number of images, got {counts}: copy {folder} again")
    return Dataset(part(train), part([test]))


def part(files: Sequence[NDArray[np.uint8]]) -> tuple[Images, NDArray[Any]]:
    """Return the images and labels of some files."""
    return Images(files), np.concatenate([records[:, 0] for records in files]).astype(np.int64)


def records_of(path: Path) -> NDArray[np.uint8]:
    """Map a file into memory as an array of shape (images, 3073)."""
    if not path.is_file():
        raise FileNotFoundError(f"CIFAR-10: there is no {path}: {what_to_do()}")
    size = path.stat().st_size
    if size == 0 or size % RECORD:
        raise ValueError(f"CIFAR-10: {path} has {size} bytes, not a multiple of {RECORD}: is it the binary version?")
    records = np.asarray(np.memmap(path, np.uint8, mode="r")).reshape(-1, RECORD)
    if (largest := int(records[:, 0].max())) > 9:
        raise ValueError(f"CIFAR-10: {path} has a label {largest}, expected 0 to 9: is it the binary version?")
    return records


def what_to_do() -> str:
    """Return instructions for obtaining the files."""
    return (
        "unpack the archive of its binary version (cifar-10-binary.tar.gz) and name the folder that has "
        f"{TRAIN[0]} to {TRAIN[-1]} and {TEST} by the option folder or by the environment variable PYC_CIFAR10"
    )
