"""The methods, one file each. To add one, add a file, and a line here."""

from __future__ import annotations

from ..reductions import any_of, average
from ..registry import Registry
from .base import GradientSynchronizer, Outcome, Simulated, Synchronizer, WeightSynchronizer

__all__ = [
    "METHODS",
    "GradientSynchronizer",
    "Outcome",
    "Simulated",
    "Synchronizer",
    "WeightSynchronizer",
    "any_of",
    "average",
]

METHODS = Registry(
    "method",
    {
        "synchronous": f"{__name__}.synchronous:Synchronous",
        "eager": f"{__name__}.eager:Eager",
        "m-synchronous": f"{__name__}.m_synchronous:MSynchronous",
        "ripples": f"{__name__}.ripples:Ripples",
        "ad-psgd": f"{__name__}.ad_psgd:AdPsgd",
        "a2cid2": f"{__name__}.ad_psgd:A2cid2",
        "d-psgd": f"{__name__}.d_psgd:DPsgd",
        "sgp": f"{__name__}.sgp:Sgp",
        "hop": f"{__name__}.hop:Hop",
        "parameter-server": f"{__name__}.parameter_server:ParameterServer",
        "eamsgd": f"{__name__}.parameter_server:Eamsgd",
        "ddp": f"{__name__}.ddp:Ddp",
    },
)
