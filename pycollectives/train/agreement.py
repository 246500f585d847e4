"""Comparisons between ranks before they train: settings, the output folder, and the resulting data and weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import __version__
from ..agreement.consistency import shortened
from . import output
from .registry import Choice

if TYPE_CHECKING:
    from ..communicator import Communicator
    from .datasets.base import Dataset
    from .models.base import Model
    from .settings import Settings

LONGEST = 120
"""The most characters of a setting that are compared. Six longer settings, with 4 bytes per character, fit into the
4096 bytes that ranks exchange."""


def require_same_settings(
    settings: Settings, comm: Communicator, *, resume: bool, on_failure: str = "raise", at_least: int = 0
) -> None:
    """Compare the settings of all ranks, and check that they see the same output folder; collective.

    Call this before any other communication: if batches or numbers of steps differ, ranks exchange different messages.
    """
    comm.agree("train", lambda: _Texts({"version of pycollectives": __version__}))  # first: settings depend on it
    of_deaths = {"on_failure": on_failure, "at_least": str(at_least)}
    comm.agree("train", lambda: _Texts({**_asked(settings, resume), **of_deaths}))
    if settings.output is not None:
        output.require_shared(settings.output, comm.mpi_comm)


def require_same_data(dataset: Dataset, model: Model, comm: Communicator) -> None:
    """Compare the data and weights of all ranks, since files and environment variables may differ; collective."""
    comm.agree("train", lambda: _Texts(_made(dataset, model)))


@dataclass(frozen=True)
class _Texts:
    """Texts of one rank that are compared with the texts of the other ranks."""

    texts: dict[str, str]

    def signature(self) -> dict[str, str]:
        """Return the values that must be the same on all ranks."""
        return {key: shortened(text, LONGEST) for key, text in self.texts.items()}


def _asked(settings: Settings, resume: bool) -> dict[str, str]:
    """Return a rank's settings as texts. The folder's path may differ: `require_shared` checks the folder."""
    texts = {key: _text(value) for key, value in vars(settings).items()}
    texts["output"] = "not given" if settings.output is None else "given"
    return {**texts, "resume": str(resume)}


def _made(dataset: Dataset, model: Model) -> dict[str, str]:
    examples = {f"{part} examples": text for part, text in dataset.fingerprints.items()}
    dtype = str(model.weights.dtype).removeprefix("torch.")
    return {**examples, "weights": f"{len(model.weights)} {dtype}"}


def _text(value: object) -> str:
    """Return the same text for equal values, such as options in another order, or 10 and 10.0."""
    if isinstance(value, Choice):
        return str(Choice(value.name, {key: _number(value.options[key]) for key in sorted(value.options)}))
    return str(_number(value))


def _number(value: object) -> object:
    """Return whole numbers as integers, and other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
