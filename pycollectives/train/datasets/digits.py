"""1 797 handwritten digits of 8 x 8 pixels from scikit-learn: real images without a download.

E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI machine learning repository, 1998.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ...support.extras import how_to_install
from .base import Dataset

FILE = ("datasets", "data", "digits.csv.gz")
"""In scikit-learn: a line per image, 64 pixels from 0 to 16 and the label."""


def digits(*, seed: int = 0) -> Dataset:
    """Return float32 images of shape (n, 1, 8, 8) in [0, 1], and labels: 1 437 for training, 360 for validation.

    Only `seed` determines the order of the images.
    """
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise ImportError(f"the digits come with scikit-learn: {how_to_install('train')}")
    # Only its file: importing scikit-learn takes each rank longer than training on it.
    table = np.loadtxt(Path(found.submodule_search_locations[0], *FILE), delimiter=",", dtype=np.int64)
    images = (table[:, :-1] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = table[:, -1]
    order = np.random.default_rng(seed).permutation(len(labels))
    train, validation = np.split(order, [len(order) * 4 // 5])
    return Dataset((images[train], labels[train]), (images[validation], labels[validation]))
