"""Replicas as files in NumPy's format: `weights`, and `PART.KEY` for each array of another part's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .arrays import assign, to_host

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from .models.base import Model


class HasState(Protocol):
    """A part of a replica, such as an optimizer, whose state is saved with the weights."""

    def state(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays of the state by name."""

    def load_state(self, state: Mapping[str, NDArray[Any]], /) -> None:
        """Load the arrays that `state` returned."""


def pack(model: Model, **others: HasState) -> dict[str, NDArray[Any]]:
    """Return the arrays of a model and of other parts by name, for a file. Arrays on the host are not copied."""
    parts: dict[str, HasState] = {"model": model, **others}
    states = {f"{name}.{key}": to_host(array) for name, part in parts.items() for key, array in part.state().items()}
    return {"weights": to_host(model.weights), **states}


def unpack(file: Mapping[str, NDArray[Any]], model: Model, **others: HasState) -> None:
    """Load the arrays that `pack` returned into the model and the other parts."""
    assign(model.weights, file["weights"])
    parts: dict[str, HasState] = {"model": model, **others}
    for name, part in parts.items():
        start = f"{name}."
        part.load_state({key.removeprefix(start): file[key] for key in file if key.startswith(start)})


def read(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file.

    Raises
    ------
    ValueError
        The file is damaged or missing; the error's text names the cause.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except Exception as error:  # of many kinds: BadZipFile, EOFError, zlib's
        raise ValueError(f"{path} cannot be read: {str(error) or type(error).__name__}") from error
