"""Figures and tables of the papers that a benchmark or another command repeats without training."""

from __future__ import annotations

from typing import NamedTuple


class Measured(NamedTuple):
    """A figure or table of a paper, and the command that repeats it."""

    command: str  # after `python -m pycollectives`
    figure: str
    ranks: int | None  # None: without mpirun
    title: str


MEASURED = (
    Measured("bench skew", "eager-SGD, Figs. 8 and 9", 32, "Latency of partial allreduces, each rank 1 ms later"),
    Measured("bench latency", "eager-SGD, section 7.1, without skew", 8, "Latency if all ranks arrive together"),
    Measured("bench hop", "Hop, Fig. 16", 16, "Iterations per second, workers 6 times slower at random"),
    Measured("bench hop --slowdown 3:4 --mode skip:10", "Hop, Fig. 18", 16, "The same, one worker 4 times slower"),
    Measured("bench hop --graph two-level --slowdown none", "Hop, Fig. 20", 8, "The same, a graph that follows hosts"),
    Measured("topology ring-based", "Hop, Fig. 21 (a)", None, "A graph and its spectral gaps"),
    Measured("topology two-level:4+2+2", "Hop, Fig. 21 (b)", None, "The same for a graph that follows 3 machines"),
    Measured("topology two-level:4+2+2:2", "Hop, Fig. 21 (c)", None, "The same with links that end at two workers"),
    Measured("bench groups --generators all", "Ripples, Fig. 17", 16, "Iterations per second in groups"),
    Measured("bench groups --slowdown 3:5", "Ripples, Fig. 19", 16, "The same with one worker slower by 5"),
    Measured("bench gossip --methods all", "AD-PSGD, Figs. 5 and 12", 16, "Iterations per second with neighbors"),
    Measured(
        "bench gossip --slowdown 0:10", "AD-PSGD, Tables 1 and 4; Ripples, Fig. 2(b)", 16, "The same, one worker slower"
    ),
    Measured("bench server --servers node", "ElasticBSP, section 6.2", 8, "Iterations per second at a server"),
    Measured("bench zipline", "ElasticBSP, Tables 2 to 4, Fig. 10", None, "Time and waiting of a barrier search"),
)
