"""A cluster's settings, read from TOML and checked before a job is submitted."""

from __future__ import annotations

import difflib
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs.validators import optional

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

LAUNCHERS = ("srun", "mpirun", "ibrun")
DEVICES = ("cpu", "cuda")


def seconds(time: str) -> int:
    """Return a time limit in seconds; ValueError for a form that sbatch does not accept.

    sbatch accepts minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes and
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


# --- Files ------------------------------------------------------------------------------------------------------------


def data_folder() -> Path:
    """Return the folder of templates and profiles: `pycollectives_slurm` if installed, `slurm` in a source tree."""
    installed = find_spec("pycollectives_slurm")
    places = list(installed.submodule_search_locations or ()) if installed else []
    for place in (*map(Path, places), Path(__file__).resolve().parents[2] / "slurm"):
        if (place / "templates" / "base.sh.j2").is_file():
            return place
    raise ValueError("the SLURM templates are missing: install pycollectives again")


def templates() -> list[str]:
    """Return the names of the batch scripts."""
    found = sorted(path.name.removesuffix(".sh.j2") for path in (data_folder() / "templates").glob("*.sh.j2"))
    return [name for name in found if name != "base"]


def names() -> list[str]:
    """Return the names of the built-in profiles."""
    return sorted(path.stem for path in (data_folder() / "profiles").glob("*.toml"))


# --- Keys -------------------------------------------------------------------------------------------------------------


def _fits(is_valid: Callable[[Any], object], expected: str) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return a validator of a key; `expected` describes valid values in messages."""

    def check(_: Any, key: attrs.Attribute[Any], value: Any) -> None:
        try:
            complaint = "" if is_valid(value) else f"expected {expected}, got {value!r}"
        except ValueError as error:
            complaint = str(error)
        if complaint:
            raise ValueError(f"{key.name}: {complaint}")

    return check


def _one_of(words: Collection[str]) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    return _fits(lambda value: value in words, f"one of {', '.join(words)}")


def _is_word(value: object) -> bool:
    """Return whether sbatch reads the value as one word of a directive."""
    return isinstance(value, str) and re.fullmatch(r"[^\s\"'\\#]+", value) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_directive(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"-\S.*", value) is not None


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(
        re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and _is_text(text) for name, text in value.items()
    )


def _all(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_valid, value))


_positive = _fits(lambda value: type(value) is int and value > 0, "an integer of at least 1")
_natural = _fits(lambda value: type(value) is int and value >= 0, "an integer of at least 0")
_word = _fits(_is_word, "a word without white space, quotes, backslash and #")
_words = _fits(_all(_is_word), "a list of words without white space, quotes, backslash and #")
_lines = _fits(_all(_is_text), "a list of strings")
_directives = _fits(_all(_is_directive), "a list of options of sbatch, each of one line")
_environment = _fits(_is_environment, "a table of strings, by names of variables")
_time = _fits(lambda value: isinstance(value, str) and seconds(value) > 0, "a time, in quotes, of more than 0")
_on_failure = _fits(lambda value: value in ("raise", "continue"), "raise or continue")


@attrs.frozen(kw_only=True)
class Profile:
    """The settings of a job on a cluster; docs/slurm.md explains the keys.

    ValueError, which names the key, if SLURM or the shell would misunderstand a value.
    """

    template: str = attrs.field(default="generic", validator=_one_of(templates()))
    job_name: str = attrs.field(default="pycollectives", validator=_word)
    nodes: int = attrs.field(default=1, validator=_positive)
    tasks_per_node: int = attrs.field(default=1, validator=_positive)
    spares: int = attrs.field(default=0, validator=_natural)
    cpus_per_task: int | None = attrs.field(default=None, validator=optional(_positive))
    device: str | None = attrs.field(default=None, validator=optional(_one_of(DEVICES)))
    gpus_per_node: int | None = attrs.field(default=None, validator=optional(_positive))
    gpus_per_task: int | None = attrs.field(default=None, validator=optional(_positive))
    partition: str | None = attrs.field(default=None, validator=optional(_word))
    constraint: str | None = attrs.field(default=None, validator=optional(_word))
    account: str | None = attrs.field(default=None, validator=optional(_word))
    time: str = attrs.field(default="01:00:00", validator=_time)
    signal_before: int = attrs.field(default=60, validator=_natural)
    starts_within: int = attrs.field(default=60, validator=_natural)
    max_requeues: int = attrs.field(default=50, validator=_natural)
    directives: list[str] = attrs.field(factory=list, validator=_directives)
    modules: list[str] = attrs.field(factory=list, validator=_words)
    environment: dict[str, str] = attrs.field(factory=dict, validator=_environment)
    lines: list[str] = attrs.field(factory=list, validator=_lines)
    launcher: str = attrs.field(default="srun", validator=_one_of(LAUNCHERS))
    on_failure: str = attrs.field(default="raise", validator=_on_failure)
    launcher_options: list[str] = attrs.field(factory=list, validator=_lines)

    def __attrs_post_init__(self) -> None:
        """Check keys that depend on each other."""
        if self.on_failure == "continue" and self.launcher != "mpirun":
            raise ValueError(
                f"on_failure: with 'continue', expected the launcher mpirun, got {self.launcher}: other "
                "launchers may end the surviving ranks"
            )
        if self.spares and self.on_failure != "continue":
            raise ValueError(f"spares: expected 0 with on_failure 'raise', got {self.spares}")
        if seconds(self.time) <= self.signal_before:
            raise ValueError(
                f"time: expected more than signal_before, the {self.signal_before} s between the job's signal and its "
                f"end, got {self.time!r}"
            )


KEYS = tuple(key.name for key in attrs.fields(Profile))


# --- Profiles ---------------------------------------------------------------------------------------------------------


def built_in(name: str, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Return a built-in profile.

    >>> built_in("piz-daint", {"nodes": 4}).constraint
    'gpu'
    """
    return _profile({**_read_built_in(name), **(overrides or {})})


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> Profile:
    """Read a profile from a TOML file, which may extend a built-in profile with `base = "NAME"`.

    ValueError, which names the file, if the file is not TOML or has an unknown key or an invalid value.
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
        raise ValueError(f"expected one of the built-in profiles {', '.join(names())}; got {name!r}")
    return _read(data_folder() / "profiles" / f"{name}.toml")


def _profile(values: Mapping[str, Any]) -> Profile:
    for key in values:
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(KEYS)}"
            raise ValueError(f"unknown key {key!r}: {hint}")
    return Profile(**values)
