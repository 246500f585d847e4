"""Synchronization of a parameter server: when it applies gradients, and when workers wait.

Section numbers refer to Zhao et al., "ElasticBSP: elastic bulk synchronous parallel", Machine Learning, 2021.

| class | an update is | a worker waits |
|---|---|---|
| `BSP()` | the mean of one gradient of each worker | for all others, after each push (section 2.2) |
| `ASP()` | each gradient | never (section 2.2) |
| `SSP(s)` | each gradient | if it is more than s pushes ahead of the slowest (section 2.2) |
| `DSSP(lo, hi)` | each gradient | the same, with a threshold from lo to hi chosen at run time (section 7) |
| `ElasticBSP(lookahead)` | each gradient | for all others, at predicted barriers (sections 3 to 5) |
| `EAMSGD(period, alpha)` | elastic averaging of weights, every `period` steps | never (section 7) |
| `Ringmaster(limit)` | each gradient with a delay below `limit` | never |
| `Rennala(batch)` | the mean of `batch` gradients of the newest weights | never |
| `Ringleader()` | the mean over workers of the mean of each one's gradients | never |
| `Rescaled()` | each gradient, weighted by its worker's time | never |
| `MindFlayer(trials, seconds)` | the mean of the gradients of successful trials | for all others, after its trials |

A gradient's delay is the number of updates between the weights on which it was computed and its arrival.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..support.validation import Declared, checked_integer, checked_number, choice, integer

MOST = 1 << 62
"""The most pushes: the sum of two such numbers fits into 64 bits."""
LONGEST_LOOKAHEAD = 1 << 16
ALGORITHMS = ("linear", "zipline", "zipline_opt", "zipline_opt_bs", "grid_scan", "full_grid_scan")
"""The functions of `pycollectives.zipline` that a server can use."""


@dataclass(frozen=True)
class Synchronization(Declared):
    """Abstract base class of the synchronizations.

    Attributes
    ----------
    kind
        The name in the engine.
    """

    kind: ClassVar[str]

    def engine_arguments(self) -> dict[str, Any]:
        """Return the arguments that describe this synchronization to the engine and the simulator."""
        return {"kind": self.kind, **self._declared()}


def _checked_patience(kind: str, name: str, value: Any) -> float:
    patience = float(value) if value == math.inf else checked_number(kind, name, value)
    if patience <= 0:
        raise ValueError(f"{kind}: expected {name} > 0, got {patience}")
    return patience


PATIENCE = {"check": _checked_patience, "engine": "patience"}


@dataclass(frozen=True)
class Patient(Synchronization):
    """Base class of the synchronizations under which workers wait for each other.

    Parameters
    ----------
    patience
        As for `SSP`.
    """

    patience: float = field(default=10.0, kw_only=True, metadata=PATIENCE)


@dataclass(frozen=True)
class BSP(Patient):
    """Bulk synchronous parallel: apply the mean of one gradient of each worker, then release all workers. Section 2.2.

    The result equals serial training on the mean of the gradients, bit for bit. Therefore `patience` is infinite by
    default: the server removes no worker. A gradient counts only if it was computed at the newest weights. If a worker
    pushes without a `pull` since the last update, the gradient is discarded and its `PushInfo` has `used=False`.

    Parameters
    ----------
    patience
        As for `SSP`, with the default `math.inf`.

    >>> BSP()
    BSP(patience=inf)
    """

    kind: ClassVar[str] = "bsp"

    patience: float = field(default=math.inf, kw_only=True, metadata=PATIENCE)


@dataclass(frozen=True)
class ASP(Synchronization):
    """Asynchronous parallel: apply each gradient when it arrives; no worker waits. Section 2.2.

    >>> ASP()
    ASP()
    """

    kind: ClassVar[str] = "asp"


@dataclass(frozen=True)
class SSP(Patient):
    """Stale synchronous parallel: as ASP, but the fastest worker is at most `s` pushes ahead. Section 2.2.

    A worker that has pushed c times waits until all workers have pushed at least c - s times (Ho et al. 2013).

    Parameters
    ----------
    s
        The largest lead in pushes, at least 0; 0 is lock-step.
    patience
        The server removes a missing worker for which others wait, with a warning, if no push of it has arrived for
        `patience` times the longest known interval between pushes, and for at least 1 s. The worker takes part again
        when it pushes. > 0; with `math.inf` the server never removes a worker.

    >>> SSP(3)
    SSP(patience=10.0, s=3)
    """

    kind: ClassVar[str] = "ssp"
    s: int = field(metadata=integer(at_least=0, at_most=MOST, engine="low"))


@dataclass(frozen=True)
class DSSP(Patient):
    """Dynamic SSP: choose the threshold at run time, from `lo` to `hi`. Zhao et al. 2019, arXiv 1908.11848.

    A worker that is more than `lo` pushes ahead makes a few more iterations if it then waits less for the slowest
    worker, as predicted from the last intervals of both. It is never more than `hi` pushes ahead.

    Parameters
    ----------
    lo, hi
        The smallest and the largest threshold in pushes, 0 <= lo <= hi.
    patience
        As for `SSP`.

    >>> DSSP(3, 15)
    DSSP(patience=10.0, lo=3, hi=15)
    """

    kind: ClassVar[str] = "dssp"
    lo: int = field(metadata=integer(at_least=0, at_most=MOST, engine="low"))
    hi: int = field(metadata=integer(at_least=0, at_most=MOST, engine="high"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hi < self.lo:
            raise ValueError(f"DSSP: expected lo <= hi, got {self.lo} and {self.hi}")


@dataclass(frozen=True)
class ElasticBSP(Patient):
    """Elastic BSP: as ASP, with barriers at times when workers wait little. Sections 3 to 5, Fig. 5.

    After a barrier, the server observes pushes until each worker has pushed twice. It predicts the next `lookahead`
    pushes of each worker from the worker's last interval, and chooses one push per worker as the next barrier.

    Parameters
    ----------
    lookahead
        The number of predicted pushes per worker (R in the paper), from 1 to 65536. The paper uses 15 to 60.
    algorithm
        The function of `pycollectives.zipline` that finds the barrier, one of `ALGORITHMS`. All but "grid_scan" and
        "full_grid_scan" find the same barrier.
    predict
        When the server predicts. "superstep": once after each barrier, as in the paper. "push" (ours): also
        when a push changes a worker's interval, from the same pushes; this shortens waits if speeds vary.
    objective
        "waiting": minimize the time for which the first worker waits for the last (Problem 1). "waiting-per-time"
        (ours): minimize this time divided by the length of the superstep.
    patience
        As for `SSP`.

    >>> ElasticBSP(lookahead=30)
    ElasticBSP(patience=10.0, lookahead=30, predict='push', algorithm='linear', objective='waiting')
    """

    kind: ClassVar[str] = "elastic-bsp"
    lookahead: int = field(default=15, metadata=integer(at_least=1, at_most=LONGEST_LOOKAHEAD, engine="lookahead"))
    predict: str = field(default="push", kw_only=True, metadata=choice("push", "superstep"))
    algorithm: str = field(default="linear", metadata={**choice(*ALGORITHMS), "engine": "solver"})
    objective: str = field(default="waiting", metadata=choice("waiting", "waiting-per-time"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective != "waiting" and self.algorithm != "linear":
            raise ValueError(
                f"ElasticBSP: expected algorithm 'linear' with objective {self.objective!r}, got {self.algorithm!r}"
            )

    def engine_arguments(self) -> dict[str, Any]:
        return {
            **super().engine_arguments(),
            "predicts_each_push": self.predict == "push",
            "weigh_length": self.objective == "waiting-per-time",
        }


@dataclass(frozen=True)
class EAMSGD(Synchronization):
    """Elastic averaging: Zhang et al. 2015, "Deep learning with elastic averaging SGD".

    Each worker trains its own weights. Every `period` steps it pushes them: the server's weights move toward them by
    `alpha` times the difference, and the worker's weights move toward the server's by the same amount.

    Parameters
    ----------
    period
        Steps between pushes, at least 1.
    alpha
        The fraction of the difference, 0 < alpha < 1.

    >>> EAMSGD(period=10, alpha=0.1)
    EAMSGD(period=10, alpha=0.1)
    """

    kind: ClassVar[str] = "eamsgd"
    period: int = field(metadata=integer(at_least=1, at_most=MOST))
    alpha: float = field(metadata={"check": checked_number})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.alpha < 1:
            raise ValueError(f"EAMSGD: expected 0 < alpha < 1, got {self.alpha}")


@dataclass(frozen=True)
class Ringmaster(Synchronization):
    """Ringmaster ASGD: as ASP, but discard gradients with a delay of `limit` or more. arXiv 2501.16168.

    Parameters
    ----------
    limit
        The smallest delay that is discarded (R in the paper), at least 1. The paper uses the variance of gradients
        divided by the target accuracy.

    >>> Ringmaster(8)
    Ringmaster(limit=8)
    """

    kind: ClassVar[str] = "ringmaster"
    limit: int = field(metadata=integer(at_least=1, at_most=MOST, engine="limit"))


@dataclass(frozen=True)
class Rennala(Synchronization):
    """Rennala SGD: apply the mean of `batch` gradients of any workers. Tyurin and Richtárik, NeurIPS 2023.

    Only gradients computed on the newest weights count; older gradients are discarded.

    Parameters
    ----------
    batch
        The number of gradients in an update (S in the paper), at least 1.

    >>> Rennala(4)
    Rennala(batch=4)
    """

    kind: ClassVar[str] = "rennala"
    batch: int = field(metadata=integer(at_least=1, at_most=MOST, engine="limit"))


@dataclass(frozen=True)
class Ringleader(Patient):
    """Ringleader ASGD: every worker has the same weight in every update, and no worker waits. arXiv 2509.22860.

    Use it for workers whose data differ. The server keeps a table with the gradients of each worker, and applies the
    whole table after each new gradient, so that a gradient is used several times. A gradient is at most 2n - 2 updates
    old.

    Parameters
    ----------
    patience
        As for `SSP`.

    >>> Ringleader()
    Ringleader(patience=10.0)
    """

    kind: ClassVar[str] = "ringleader"


@dataclass(frozen=True)
class Rescaled(Synchronization):
    """Rescaled asynchronous SGD: as ASP, but weight gradients by their worker's time. arXiv 2605.13434.

    Use it for workers whose data differ: every worker contributes the same per unit of time, independent of its speed.
    The mean of the weights is 1.

    >>> Rescaled()
    Rescaled()
    """

    kind: ClassVar[str] = "rescaled"


@dataclass(frozen=True)
class MindFlayer(Patient):
    """MindFlayer SGD: give up gradients that take too long, and start them again. arXiv 2410.04285.

    Use it for compute times with heavy tails. In each superstep, each worker makes a fixed number of trials on the same
    weights, each with a time limit. The update is the mean of the gradients that have arrived.

    Parameters
    ----------
    trials
        Trials per superstep, at least 1: one number, or a sequence with one for each worker.
    seconds
        Time limit of a trial including its messages, > 0: one number, or a sequence with one for each worker.
    patience
        As for `SSP`.

    >>> MindFlayer(4, 0.5)
    MindFlayer(patience=10.0, trials=(4,), seconds=(0.5,))
    """

    kind: ClassVar[str] = "mindflayer"
    trials: int | tuple[int, ...]
    seconds: float | tuple[float, ...]

    def __post_init__(self) -> None:
        """Check all fields, and make `trials` and `seconds` equally long."""
        super().__post_init__()
        trials = [checked_integer("MindFlayer: trials", each, at_least=1, at_most=MOST) for each in _each(self.trials)]
        seconds = [_checked_seconds(each) for each in _each(self.seconds)]
        workers = max(len(trials), len(seconds))
        if not trials or not seconds or {len(trials), len(seconds)} - {1, workers}:
            raise ValueError(
                f"MindFlayer: expected tuples of one length, got {len(trials)} trials and {len(seconds)} seconds"
            )
        object.__setattr__(self, "trials", tuple(trials * (workers // len(trials))))
        object.__setattr__(self, "seconds", tuple(seconds * (workers // len(seconds))))

    def engine_arguments(self) -> dict[str, Any]:
        return {**super().engine_arguments(), "trials": _each(self.trials), "allotted": _each(self.seconds)}


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _checked_seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"MindFlayer: expected numbers as seconds, got {value!r}") from None
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"MindFlayer: expected finite seconds > 0, got {value!r}")
    return seconds


def parse(text: str) -> Synchronization:
    """Return the synchronization for its string, as on a command line.

    Parameters
    ----------
    text
        "bsp", "asp", "ssp:S", "dssp:LO:HI", "elastic[:LOOKAHEAD[:PREDICT]]", "elastic-per-time[:LOOKAHEAD]"
        (objective="waiting-per-time"), "eamsgd:PERIOD:ALPHA", "ringmaster:LIMIT", "rennala:BATCH", "ringleader",
        "rescaled" or "mindflayer:TRIALS:SECONDS".

    Raises
    ------
    ValueError
        The string is not one of these, or a number is out of range.

    >>> parse("elastic:30:superstep")
    ElasticBSP(patience=10.0, lookahead=30, predict='superstep', algorithm='linear', objective='waiting')
    >>> parse("mindflayer:4:0.5")
    MindFlayer(patience=10.0, trials=(4,), seconds=(0.5,))
    """
    name, *words = text.split(":")
    found = _PARSED.get((name, len(words)))
    if found is None:
        raise ValueError(f"expected a synchronization, {', '.join(_TEXTS[:-1])} or {_TEXTS[-1]}, got {text!r}")
    made, types = found
    try:
        numbers = [type_(word) for type_, word in zip(types, words, strict=True)]
    except ValueError:
        form = next(form for form in _TEXTS if form.split(":")[0] == name and form.count(":") == len(words))
        raise ValueError(f"expected the synchronization {form}, with numbers, got {text!r}") from None
    made_of: Synchronization = made(*numbers)
    return made_of


def _elastic(lookahead: int, predict: str) -> ElasticBSP:
    return ElasticBSP(lookahead, predict=predict)


def _elastic_per_time(lookahead: int = 15) -> ElasticBSP:
    return ElasticBSP(lookahead, objective="waiting-per-time")


_PARSED: dict[tuple[str, int], tuple[Any, tuple[type, ...]]] = {
    ("bsp", 0): (BSP, ()),
    ("asp", 0): (ASP, ()),
    ("ssp", 1): (SSP, (int,)),
    ("dssp", 2): (DSSP, (int, int)),
    ("elastic", 0): (ElasticBSP, ()),
    ("elastic", 1): (ElasticBSP, (int,)),
    ("elastic", 2): (_elastic, (int, str)),
    ("elastic-per-time", 0): (_elastic_per_time, ()),
    ("elastic-per-time", 1): (_elastic_per_time, (int,)),
    ("eamsgd", 2): (EAMSGD, (int, float)),
    ("ringmaster", 1): (Ringmaster, (int,)),
    ("rennala", 1): (Rennala, (int,)),
    ("ringleader", 0): (Ringleader, ()),
    ("rescaled", 0): (Rescaled, ()),
    ("mindflayer", 2): (MindFlayer, (int, float)),
}
_TEXTS = (
    "bsp", "asp", "ssp:S", "dssp:LO:HI", "elastic:LOOKAHEAD", "elastic:LOOKAHEAD:PREDICT", "elastic-per-time:LOOKAHEAD",
    "eamsgd:PERIOD:ALPHA", "ringmaster:LIMIT", "rennala:BATCH", "ringleader", "rescaled", "mindflayer:TRIALS:SECONDS",
)  # fmt: skip
