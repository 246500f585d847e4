"""The settings of a training job. Options of the command line override a TOML file, which overrides defaults."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from .optimizers import OPTIMIZERS
from .registry import Choice
from .values import check

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BATCH = 64
"""Examples of all ranks together in a step, or the next multiple of the number of ranks."""

MOST_EPOCHS = 1e9

DEVICES = re.compile(r"cpu|cuda(:[0-9]+)?")

REQUEUE = 75
"""The exit code of a job that has written a checkpoint and is to be run again: EX_TEMPFAIL of sysexits.h."""


@dataclass(frozen=True)
class Settings:
    """The settings of a training job.

    Attributes
    ----------
    method, model, data, optimizer, schedule, load
        Choices by name: see `registry`.
    batch
        Examples of all ranks in a step; by default `DEFAULT_BATCH`, rounded up to a multiple of the number of ranks.
    epochs
        Passes over the data.
    seconds
        Time after which training ends, earlier runs included, even if passes are left. Each rank completes its current
        step. If None, there is no limit.
    settle_epochs
        The number of epochs after which replicas are made equal again; if None, only at the end.
    by_speed
        Whether ranks take their batches from one counter, so that fast ranks take more batches. Otherwise all ranks
        take the same number.
    seed
        Seed of the data, the order of examples, the first weights, the load, and the method if it uses one.
    device
        Where PyTorch models compute: "cpu"; "cuda", the devices of a machine for its ranks in rotation; or "cuda:N".
    output
        Folder for metrics, the summary and the checkpoint. If None, nothing is written.
    """

    method: Choice = field(default=Choice("synchronous"))
    model: Choice = field(default=Choice("mlp"))
    data: Choice = field(default=Choice("digits"))
    optimizer: Choice = field(default=Choice("sgd"))
    schedule: Choice = field(default=Choice("constant"))
    load: Choice = field(default=Choice("equal"))
    batch: int | None = None
    epochs: float = 10
    seconds: float | None = None
    settle_epochs: float | None = None
    by_speed: bool = False
    seed: int = 1
    device: str = "cpu"
    output: Path | None = None

    @classmethod
    def read(cls, path: Path | None, given: Mapping[str, Any]) -> Settings:
        """Return the settings: `given` values override a TOML file's. Errors in the file begin with its path."""
        table = read_toml(path) if path else {}
        try:
            cls.of(table)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        return cls.of(table, given)

    @classmethod
    def of(cls, *sources: Mapping[str, Any]) -> Settings:
        """Return the settings from sources; a later source overrides earlier sources."""
        values: dict[str, Any] = {}
        for source in sources:
            values |= source
        known = get_type_hints(cls)
        if unknown := values.keys() - known.keys():
            raise ValueError(f"unknown setting {min(unknown)!r}; expected some of {', '.join(known)}")
        return cls(**{key: _converted(key, known[key], value) for key, value in values.items()})

    def __post_init__(self) -> None:
        """Refuse impossible settings, and replace aliases with the names of options."""
        object.__setattr__(self, "optimizer", OPTIMIZERS.canonical(self.optimizer))
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"batch: expected at least 1 example, got {self.batch}")
        if not 0 < self.epochs <= MOST_EPOCHS:
            raise ValueError(f"epochs: expected a number > 0 and at most {MOST_EPOCHS:.0e}, got {self.epochs}")
        for name in ("seconds", "settle_epochs"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: expected a number > 0, got {value}")
        if self.seed < 0:
            raise ValueError(f"seed: expected a number >= 0, got {self.seed}")
        if not DEVICES.fullmatch(self.device):
            raise ValueError(f"device: expected cpu, cuda or cuda:N, got {self.device!r}")

    def batch_of(self, ranks: int) -> int:
        """Return the number of examples of all ranks in a step."""
        return -(-DEFAULT_BATCH // ranks) * ranks if self.batch is None else self.batch

    def as_json(self) -> dict[str, Any]:
        """Return the settings as values for JSON."""
        return {key: str(value) if isinstance(value, Path) else value for key, value in asdict(self).items()}


def _converted(key: str, kind: Any, value: Any) -> Any:
    try:
        if kind is Choice:
            return Choice.parse(value)
        if kind == Path | None:
            if value == "":
                raise ValueError("expected a folder, got ''")
            return None if value is None else Path(value)
        if not (kind in (float, float | None) and isinstance(value, float)):  # `Settings` says which numbers fit
            check(value, kind)
        return value
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: {error}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file; ValueError if the file is not TOML, or cannot be read."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
