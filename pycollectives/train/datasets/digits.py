"""1 797 handwritten digits of 8 x 8 pixels, which come with scikit-learn: real images without a download.

E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI machine learning repository, 1998.
"""

from __future__ import annotations

import numpy as np

from .base import Dataset

__all__ = ["digits"]


def digits(*, seed: int = 0) -> Dataset:
    """Images, float32 of shape (n, 1, 8, 8) in [0, 1], and labels: 1 437 to train on, 360 to validate with.

    Which image is where depends on `seed` alone.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'pycollectives[train]'") from error
    data, labels = load_digits(return_X_y=True)
    images = (data / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(labels))
    train, validation = np.split(order, [len(order) * 4 // 5])
    return Dataset((images[train], labels[train]), (images[validation], labels[validation]))
