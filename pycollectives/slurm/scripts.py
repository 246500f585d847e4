"""Render batch scripts from a Jinja2 template, a profile and the commands of a job."""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
import sys
from typing import TYPE_CHECKING

import attrs

from ..train.settings import REQUEUE
from . import profiles

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = "{results}"
"""Placeholder in a command for the job's folder of results, which is known only in the job."""


def render(
    profile: profiles.Profile,
    commands: Sequence[Sequence[str]],
    *,
    folder: str = "runs",
    array: bool = False,
    at_most: int | None = None,
) -> str:
    """Return a batch script that runs a command on all ranks, or, with `array`, one command in each task of an array.

    `commands`: the words of each command. `folder`: the folder of logs (JOB.log) and results (a folder JOB per job).
    `at_most`: the most tasks of the array that run at the same time. ValueError if the profile lacks a key that the
    template needs, there is no command, or `{results}` is misspelled.
    """
    import jinja2

    if not commands or not all(commands) or (len(commands) > 1 and not array):
        raise ValueError("expected a command, after --")
    _require_results_well_spelt([word for command in commands for word in command])
    if not re.fullmatch(r"[^\s\"'\\#%$`]+", folder):
        raise ValueError(f"folder: expected a path without white space, quotes, backslash and #%$`, got {folder!r}")

    def need(key: str) -> str:
        if getattr(profile, key) is None:
            raise ValueError(f"the template {profile.template} needs a {key}: pass --{key}, or set {key} in a profile")
        return ""

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(profiles.data_folder() / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters.update(quote=shlex.quote, shell_word=shell_word)
    values = attrs.asdict(profile)
    values["device"] = profile.device or ("cuda" if asks_for_cuda(commands) else "cpu")
    return environment.get_template(f"{profile.template}.sh.j2").render(
        values,
        commands=commands,
        folder=folder,
        array=array,
        at_most=at_most,
        need=need,
        again=REQUEUE,
        virtual_environment=sys.prefix if sys.prefix != sys.base_prefix else None,
    )


def asks_for_cuda(commands: Sequence[Sequence[str]]) -> bool:
    """Return whether a command has the option `--device cuda` or `cuda:N` of training and benchmarks.

    >>> asks_for_cuda([["train", "--device", "cuda:0"]]), asks_for_cuda([["bench", "--device=cuda"]])
    (True, True)
    >>> asks_for_cuda([["train", "--device", "cpu", "cuda"]])
    False
    """
    # One line per word. An option and its value are on two lines or on one.
    return any(re.search(r"^--device[=\n]cuda(:\d+)?$", "\n".join(command), re.MULTILINE) for command in commands)


def _require_results_well_spelt(words: Sequence[str]) -> None:
    """Refuse a misspelled `{results}`, which would become a folder of that name, shared by all tasks of an array."""
    if any(RESULTS in word for word in words):
        return
    places = {place.lower(): place for word in words for place in re.findall(r"\{\w+\}", word)}
    for close in difflib.get_close_matches(RESULTS, places, n=1, cutoff=0.75):
        raise ValueError(f"{places[close]} in the command: did you mean {RESULTS}?")


def shell_word(word: str) -> str:
    """Quote a word of a command for the shell, except for `{results}`.

    >>> print(shell_word("it's"), shell_word("{results}/a b"), shell_word(""))
    'it'"'"'s' "$PYC_RESULTS"'/a b' ''
    """
    quoted = (shlex.quote(part) if part else "" for part in word.split(RESULTS))
    return '"$PYC_RESULTS"'.join(quoted) or "''"


def product(command: Sequence[str], **values: Sequence[str]) -> list[list[str]]:
    """Return the commands of a sweep: placeholders such as `{method}` replaced by each combination of the values.

    ValueError for values without a placeholder in the command, or a placeholder without values.

    >>> product(["train", "{method}", "--seed={seed}"], method=["solo", "full"], seed=["1"])
    [['train', 'solo', '--seed=1'], ['train', 'full', '--seed=1']]
    """
    for name, given in values.items():
        has_place = any(f"{{{name}}}" in word for word in command)
        if given and not has_place:
            raise ValueError(f"--{name}: expected {{{name}}} in the command, got {shlex.join(command)}")
        if has_place and not given:
            raise ValueError(f"{{{name}}} in the command: expected at least one --{name}")
    swept = {name: given for name, given in values.items() if given}
    if not swept:
        raise ValueError(f"expected values to sweep over: {', '.join(f'--{name}' for name in values)}")
    places = re.compile("|".join(rf"\{{{name}\}}" for name in swept))

    def filled(word: str, combination: dict[str, str]) -> str:
        return places.sub(lambda place: combination[place[0][1:-1]], word)

    combinations = (dict(zip(swept, each, strict=True)) for each in itertools.product(*swept.values()))
    return [[filled(word, combination) for word in command] for combination in combinations]
