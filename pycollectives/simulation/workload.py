"""Loads: the working time of each rank before each of its calls, for simulation and benchmarks.

A load is an array of shape (ranks, calls), in seconds. `work` is the common work of all ranks, and `skew` the scale of
the additional time. Some loads have options. To add a load, write a function

    def NAME(work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator, *, OPTION=...) -> NDArray

that returns float64 of shape (ranks, calls) and takes random numbers from `draws`, and add it to `LOADS`. The default
of an option determines its type.

| load | seconds of rank r before call j | after |
|---|---|---|
| equal | work | |
| linear | work + (r + 1) skew | eager-SGD, Figs. 8 and 9 |
| one-late | work, + skew for one rank (or `late` ranks), drawn for each call | eager-SGD, 7.2.1 and 7.2.2 |
| rotating | work, + skew for rank j mod P | |
| shifting | work + skew (1 + (r + j) mod P) / P: every rank late, in rotation | eager-SGD, 7.2.3 |
| lognormal | work times a lognormal variate of mean 1 and shape skew / work | eager-SGD, LSTM |
| cloud | work + skew times a lognormal variate of mean 1 and deviation 116 / 55, at most 1493 / 55: \
  399 to 1892 ms, mean 454 ms, for a work of 399 ms and a skew of 55 ms | eager-SGD, Fig. 4 |
| one-slow | work, times `factor` for the last rank (or `rank`), plus skew for it | Ripples, 7.4 |
| random-slow | work, times `factor` (6) plus skew with probability 1/P, for each rank and call | Hop, 7.3.1 |
| speeds | work, times a constant factor of each rank, drawn from 1 to `most` (1.5); plus skew | ElasticBSP, 6.1 |
"""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYWORD_ONLY = Parameter.KEYWORD_ONLY

Work = npt.NDArray[np.float64]


def _lognormal(work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator) -> Work:
    if work == 0:
        raise ValueError("load 'lognormal': expected work > 0, because the load multiplies it")
    sigma = skew / work
    return work * draws.lognormal(-(sigma**2) / 2, sigma, shape)


CLOUD_LOG_MEAN, CLOUD_LOG_DEVIATION, CLOUD_LONGEST = -0.993036, 1.424819, 1493 / 55
"""The additional time of a ResNet-50 batch on Google Cloud, in units of its mean (eager-SGD, Fig. 4): a lognormal
distribution, capped at the longest time, with mean 1 and deviation 116 / 55."""


def _cloud(work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator) -> Work:
    return work + skew * np.minimum(draws.lognormal(CLOUD_LOG_MEAN, CLOUD_LOG_DEVIATION, shape), CLOUD_LONGEST)


def _marked(work: float, skew: float, late: npt.NDArray[np.bool_]) -> Work:
    return np.where(late, work + skew, work)


def _late(work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator, *, late: int = 1) -> Work:
    if not 0 <= late <= shape[0]:
        raise ValueError(f"load 'one-late': expected late from 0 to {shape[0]}, the number of ranks; got {late}")
    order = draws.random(shape).argsort(axis=0).argsort(axis=0)
    return _marked(work, skew, order < late)


def _slow(
    work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator, *, factor: float = 1.0, rank: int = -1
) -> Work:
    if not (factor > 0 and -1 <= rank < shape[0]):
        raise ValueError(f"load 'one-slow': expected factor > 0 and rank below {shape[0]}; got {factor} and {rank}")
    seconds = np.full(shape, float(work))
    seconds[rank] = work * factor + skew
    return seconds


def _random_slow(
    work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator, *, factor: float = 6.0
) -> Work:
    if not factor > 0:
        raise ValueError(f"load 'random-slow': expected factor > 0, got {factor}")
    return np.where(draws.random(shape) < 1 / shape[0], work * factor + skew, work)


def _speeds(work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator, *, most: float = 1.5) -> Work:
    if not most >= 1:
        raise ValueError(f"load 'speeds': expected most >= 1, got {most}")
    return np.repeat(work * draws.uniform(1, most, (shape[0], 1)) + skew, shape[1], axis=1)


def _rank(shape: tuple[int, int]) -> npt.NDArray[np.int64]:
    return np.arange(shape[0])[:, None]


def _call(shape: tuple[int, int]) -> npt.NDArray[np.int64]:
    return np.arange(shape[1])[None, :]


LOADS: dict[str, Callable[..., Work]] = {
    "equal": lambda work, skew, shape, draws: np.full(shape, work),
    "linear": lambda work, skew, shape, draws: np.broadcast_to(work + skew * (_rank(shape) + 1), shape).copy(),
    "one-late": _late,
    "rotating": lambda work, skew, shape, draws: _marked(work, skew, _rank(shape) == _call(shape) % shape[0]),
    "shifting": lambda work, skew, shape, draws: (
        work + skew * (1 + (_rank(shape) + _call(shape)) % shape[0]) / shape[0]
    ),
    "lognormal": _lognormal,
    "cloud": _cloud,
    "one-slow": _slow,
    "random-slow": _random_slow,
    "speeds": _speeds,
}
"""The loads by name: functions of work, skew, shape (ranks, calls), a generator of random numbers, and options."""


def make(name: str, *, ranks: int, calls: int, work: float, skew: float, seed: int, **options: Any) -> Work:
    """Create a load by its name: seconds, of shape (ranks, calls).

    `skew` is the scale of the time in addition to `work`. `options`: `late` for one-late, `factor` and `rank` for
    one-slow, `factor` for random-slow, `most` for speeds.

    >>> make("linear", ranks=2, calls=1, work=0.0, skew=0.001, seed=0).ravel().tolist()
    [0.001, 0.002]
    """
    if name not in LOADS:
        raise ValueError(f"load: expected one of {', '.join(LOADS)}; got {name!r}")
    if ranks < 1 or calls < 1:
        raise ValueError(f"load: expected at least 1 rank and 1 call, got {ranks} and {calls}")
    if not (work >= 0 and skew >= 0):
        raise ValueError(f"load: expected work >= 0 and skew >= 0 seconds, got {work} and {skew}")
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"load {name!r}: seed: expected a whole number >= 0, got {seed!r}")
    accepted = {key: one.default for key, one in signature(LOADS[name]).parameters.items() if one.kind is KEYWORD_ONLY}
    for key, value in options.items():
        if key not in accepted:
            names = ", ".join(("work", "skew", *accepted))
            raise ValueError(f"load {name!r}: unknown option {key!r}; its options are {names}")
        if isinstance(accepted[key], int) and not isinstance(value, int):
            raise ValueError(f"load {name!r}: {key}: expected a whole number, got {value!r}")
    return LOADS[name](work, skew, (ranks, calls), np.random.default_rng(seed), **options)


def read(path: Path) -> Work:
    """Read a CSV file with a line per call and a column per rank, in seconds, of shape (ranks, calls).

    ValueError if it is empty, or has an invalid number, lines of different lengths, or a negative time.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if not any(line.partition("#")[0].strip() for line in lines):
        raise ValueError(f"{path}: expected a line per call, got an empty file")
    try:
        table = np.loadtxt(lines, delimiter=",", ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path}: expected numbers separated by commas: {error}") from error
    if not (np.isfinite(table).all() and (table >= 0).all()):
        raise ValueError(f"{path}: expected finite times >= 0 seconds")
    return table.T.copy()


def from_csv(path: Path, *, ranks: int, calls: int) -> Work:
    """Read a load from a file as in `read`.

    A single column applies to all ranks. If there are fewer lines than calls, lines repeat; extra lines are
    ignored.
    """
    table = read(path).T
    columns = table.shape[1]
    if columns not in (1, ranks):
        raise ValueError(f"{path}: expected one column per rank ({ranks}) or one for all ranks, got {columns} columns")
    repeated = table[np.arange(calls) % len(table)]
    return np.broadcast_to(repeated, (calls, ranks)).T.copy()
