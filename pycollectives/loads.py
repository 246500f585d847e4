"""Loads: how long each rank works before each of its calls. For simulation and benchmarks.

A load is an array of shape (ranks, calls), in seconds. `work` is what every rank does in any case, `skew` the scale of
what comes on top, so that each load has one knob.

| load | seconds of rank r before call j | after |
|---|---|---|
| equal | work | |
| linear | work + (r + 1) skew | eager-SGD, Figs. 8 and 9 |
| one-late | work, + skew for one rank drawn anew for each call | eager-SGD, hyperplane regression |
| rotating | work, + skew for rank j mod P | |
| shifting | work + skew (1 + (r + j) mod P) / P: every rank late, by turns | eager-SGD, ResNet-32 |
| lognormal | work times a lognormal variate of mean 1 and shape skew / work | eager-SGD, LSTM |
| cloud | work + an exponential variate of mean skew | eager-SGD, Fig. 2 |
| one-slow | work, + skew for the last rank | AD-PSGD, Ripples |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["LOADS", "from_csv", "make"]

Work = npt.NDArray[np.float64]


def _lognormal(work: float, skew: float, shape: tuple[int, int], draws: np.random.Generator) -> Work:
    if work == 0:
        raise ValueError("load 'lognormal': expected work > 0, since it is multiplied")
    sigma = skew / work
    return work * draws.lognormal(-(sigma**2) / 2, sigma, shape)


def _marked(work: float, skew: float, late: npt.NDArray[np.bool_]) -> Work:
    return np.where(late, work + skew, work)


def _rank(shape: tuple[int, int]) -> npt.NDArray[np.int64]:
    return np.arange(shape[0])[:, None]


def _call(shape: tuple[int, int]) -> npt.NDArray[np.int64]:
    return np.arange(shape[1])[None, :]


LOADS: dict[str, Callable[[float, float, tuple[int, int], np.random.Generator], Work]] = {
    "equal": lambda work, skew, shape, draws: np.full(shape, work),
    "linear": lambda work, skew, shape, draws: np.broadcast_to(work + skew * (_rank(shape) + 1), shape).copy(),
    "one-late": lambda work, skew, shape, draws: _marked(
        work, skew, _rank(shape) == draws.integers(shape[0], size=shape[1])
    ),
    "rotating": lambda work, skew, shape, draws: _marked(work, skew, _rank(shape) == _call(shape) % shape[0]),
    "shifting": lambda work, skew, shape, draws: (
        work + skew * (1 + (_rank(shape) + _call(shape)) % shape[0]) / shape[0]
    ),
    "lognormal": _lognormal,
    "cloud": lambda work, skew, shape, draws: work + draws.exponential(skew, shape),
    "one-slow": lambda work, skew, shape, draws: _marked(
        work, skew, np.broadcast_to(_rank(shape) == shape[0] - 1, shape)
    ),
}
"""The loads by name: functions of work, skew, shape (ranks, calls) and a generator of random numbers."""


def make(name: str, *, ranks: int, calls: int, work: float, skew: float, seed: int) -> Work:
    """Return a load.

    Parameters
    ----------
    name
        One of `LOADS`.
    ranks, calls
        The shape, each at least 1.
    work, skew
        Seconds, >= 0.
    seed
        Of the random loads.

    Returns
    -------
    ndarray
        Shape (ranks, calls), seconds.

    >>> make("linear", ranks=2, calls=1, work=0.0, skew=0.001, seed=0).ravel().tolist()
    [0.001, 0.002]
    """
    if name not in LOADS:
        raise ValueError(f"load: expected one of {', '.join(LOADS)}; got {name!r}")
    if ranks < 1 or calls < 1:
        raise ValueError(f"load: expected at least 1 rank and 1 call, got {ranks} and {calls}")
    if not (work >= 0 and skew >= 0):
        raise ValueError(f"load: expected work >= 0 and skew >= 0 seconds, got {work} and {skew}")
    return LOADS[name](work, skew, (ranks, calls), np.random.default_rng(seed))


def from_csv(path: Path, *, ranks: int, calls: int) -> Work:
    """Return a load from a file with one line per call and one column per rank, in seconds; it repeats to fill.

    Raises
    ------
    ValueError
        If the file is not that: a bad number, lines of different lengths, nothing, or a negative time.
    """
    try:
        table = np.loadtxt(path, delimiter=",", ndmin=2, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path}: expected numbers separated by commas: {error}") from error
    if table.size == 0 or not (np.isfinite(table).all() and (table >= 0).all()):
        raise ValueError(f"{path}: expected finite times >= 0 seconds, at least one")
    trace = table.T
    filled: Work = trace[np.arange(ranks) % trace.shape[0]][:, np.arange(calls) % trace.shape[1]]
    return filled
