"""A cluster's settings, read from TOML and checked before a job is submitted."""

from __future__ import annotations

import dataclasses
import difflib
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LAUNCHERS = ("srun", "mpirun", "ibrun")
DEVICES = ("cpu", "cuda")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Profile:
    """The settings of a job on a cluster; docs/slurm.md explains the keys.

    ValueError, with the key, if SLURM or the shell would misunderstand a value.
    """

    template: str = "generic"
    job_name: str = "pycollectives"
    nodes: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int | None = None
    device: str | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    partition: str | None = None
    constraint: str | None = None
    account: str | None = None
    time: str = "01:00:00"
    signal_before: int = 60
    starts_within: int = 60
    max_requeues: int = 50
    directives: list[str] = dataclasses.field(default_factory=list)
    modules: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    lines: list[str] = dataclasses.field(default_factory=list)
    launcher: str = "srun"
    on_failure: str = "raise"
    launcher_options: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        for key, check in CHECKS.items():
            value = getattr(self, key)
            if value is None and key in OPTIONAL:
                continue
            if complaint := check(value):
                raise ValueError(f"{key}: expected {complaint}, got {value!r}")
        if self.on_failure == "continue" and self.launcher != "mpirun":
            raise ValueError(
                f"on_failure: with 'continue', expected the launcher mpirun, got {self.launcher}: of others it is not "
                "known whether they let the other ranks live"
            )
        if seconds(self.time) <= self.signal_before:
            raise ValueError(
                f"time: expected more than the {self.signal_before} s before its end at which the job is told to stop "
                f"(signal_before), got {self.time!r}"
            )


def seconds(time: str) -> int:
    """Return a time limit in seconds; ValueError for a form that sbatch does not know.

    It knows minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
    days-hours:minutes:seconds.

    >>> seconds("90"), seconds("1:30"), seconds("01:30:00"), seconds("1-12"), seconds("1-0:30")
    (5400, 90, 5400, 129600, 88200)
    """
    if match := re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?::(\d+))?", time, re.ASCII):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    elif match := re.fullmatch(r"(?:(\d+):)?(\d+):(\d+)", time, re.ASCII):
        days, (hours, minutes, rest) = 0, (int(part or 0) for part in match.groups())
    elif re.fullmatch(r"\d+", time, re.ASCII):
        days, hours, minutes, rest = 0, 0, int(time), 0
    else:
        raise ValueError(f"expected a time such as 30 (minutes), 01:30:00 or 1-12:00:00, got {time!r}")
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


# --- Checks: a check returns a description of valid values, or None ---------------------------------------------------


def _positive(value: object) -> str | None:
    return None if type(value) is int and value > 0 else "an integer of at least 1"


def _natural(value: object) -> str | None:
    return None if type(value) is int and value >= 0 else "an integer of at least 0"


def _word(value: object) -> str | None:
    """Check a word of a directive, which sbatch splits at white space, quotes and #."""
    fits = isinstance(value, str) and re.fullmatch(r"[^\s\"'\\#]+", value)
    return None if fits else "a word without white space, quotes, backslash and #"


def _words(value: object) -> str | None:
    fits = isinstance(value, list) and all(_word(word) is None for word in value)
    return None if fits else "a list of words without white space, quotes, backslash and #"


def _time(value: object) -> str | None:
    try:
        return None if isinstance(value, str) and seconds(value) > 0 else "a time, in quotes, of more than 0"
    except ValueError:
        return "a time such as 30 (minutes), 01:30:00 or 1-12:00:00"


def _directives(value: object) -> str | None:
    fits = isinstance(value, list) and all(isinstance(d, str) and re.fullmatch(r"-\S.*", d) for d in value)
    return None if fits else "a list of options of sbatch, each of one line"


def _lines(value: object) -> str | None:
    fits = isinstance(value, list) and all(isinstance(line, str) and "\0" not in line for line in value)
    return None if fits else "a list of strings"


def _environment(value: object) -> str | None:
    fits = isinstance(value, dict) and all(
        re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and isinstance(text, str) and "\0" not in text
        for name, text in value.items()
    )
    return None if fits else "a table of strings, by names of variables"


def _launcher(value: object) -> str | None:
    return None if value in LAUNCHERS else f"one of {', '.join(LAUNCHERS)}"


def _on_failure(value: object) -> str | None:
    return None if value in ("raise", "continue") else "raise or continue"


def _device(value: object) -> str | None:
    return None if value in DEVICES else f"one of {', '.join(DEVICES)}"


def _template(value: object) -> str | None:
    return None if value in templates() else f"one of {', '.join(templates())}"


CHECKS: dict[str, Callable[[object], str | None]] = {
    "template": _template,
    "job_name": _word,
    "nodes": _positive,
    "tasks_per_node": _positive,
    "cpus_per_task": _positive,
    "device": _device,
    "gpus_per_node": _positive,
    "gpus_per_task": _positive,
    "partition": _word,
    "constraint": _word,
    "account": _word,
    "time": _time,
    "signal_before": _natural,
    "starts_within": _natural,
    "max_requeues": _natural,
    "directives": _directives,
    "modules": _words,
    "environment": _environment,
    "lines": _lines,
    "launcher": _launcher,
    "on_failure": _on_failure,
    "launcher_options": _lines,
}
OPTIONAL = {"cpus_per_task", "device", "gpus_per_node", "gpus_per_task", "partition", "constraint", "account"}


# --- Files ------------------------------------------------------------------------------------------------------------


def data_folder() -> Path:
    """Return the folder of templates and profiles: `pycollectives_slurm` if installed, `slurm` in a source tree."""
    installed = find_spec("pycollectives_slurm")
    places = list(installed.submodule_search_locations or ()) if installed else []
    for place in (*map(Path, places), Path(__file__).resolve().parents[2] / "slurm"):
        if (place / "templates" / "base.sh.j2").is_file():
            return place
    raise ValueError("the SLURM templates are not installed beside this package")


def templates() -> list[str]:
    """Return the names of the batch scripts."""
    found = sorted(path.name.removesuffix(".sh.j2") for path in (data_folder() / "templates").glob("*.sh.j2"))
    return [name for name in found if name != "base"]


def names() -> list[str]:
    """Return the names of the built-in profiles."""
    return sorted(path.stem for path in (data_folder() / "profiles").glob("*.toml"))


def built_in(name: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Return a built-in profile.

    >>> built_in("piz-daint", {"nodes": 4}).constraint
    'gpu'
    """
    return _profile({**_read_built_in(name), **(overrides or {})})


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Read a profile from a TOML file, which may start from a built-in profile by `base = "NAME"`.

    ValueError, with the file, if it is not TOML or has an unknown key or an invalid value.
    """
    try:
        values = _read(path)
        if "base" in values:
            base = _read_built_in(values.pop("base"))
            if isinstance(values.get("environment"), dict):
                values["environment"] = {**base.get("environment", {}), **values["environment"]}
            values = {**base, **values}
        # First without overrides, so that the error names the file only for its own values.
        _profile({**values, **({"launcher": overrides["launcher"]} if overrides and "launcher" in overrides else {})})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return _profile({**values, **(overrides or {})})


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(error.strerror) from error


def _read_built_in(name: object) -> dict[str, Any]:
    if name not in names():
        raise ValueError(f"expected a built-in profile of {', '.join(names())}; got {name!r}")
    return _read(data_folder() / "profiles" / f"{name}.toml")


def _profile(values: Mapping[str, Any]) -> Profile:
    for key in values:
        if key not in CHECKS:
            close = difflib.get_close_matches(key, CHECKS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(CHECKS)}"
            raise ValueError(f"unknown key {key!r}: {hint}")
    return Profile(**values)
