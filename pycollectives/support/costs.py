"""The costs of messages: the parameters of LogGP (Alexandrov et al. 1995), with values for common networks."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Costs:
    """The LogGP costs of messages on a machine; if all are zero, messages cost nothing.

    Attributes
    ----------
    latency
        L: seconds that a message takes to travel.
    overhead
        o: seconds that the processor needs to send or receive a message.
    gap_per_byte
        G: seconds per byte on the wire.
    reduce_per_byte
        Seconds to reduce a byte.

    >>> print(Costs(1.5e-6, 0.5e-6, 0.1e-9, 0.1e-9))
    L = 1.5 us, o = 0.5 us, G = 0.1 ns/B, 0.1 ns/B reduced
    """

    latency: float = 0.0
    overhead: float = 0.0
    gap_per_byte: float = 0.0
    reduce_per_byte: float = 0.0

    def __post_init__(self) -> None:
        if not all(isinstance(value, (int, float)) and 0 <= value < float("inf") for value in astuple(self)):
            raise ValueError(f"costs: expected seconds >= 0, got {astuple(self)}")

    def __str__(self) -> str:
        return (
            f"L = {1e6 * self.latency:.3g} us, o = {1e6 * self.overhead:.3g} us, "
            f"G = {1e9 * self.gap_per_byte:.3g} ns/B, {1e9 * self.reduce_per_byte:.3g} ns/B reduced"
        )


IDEAL = Costs()
SHARED_MEMORY = Costs(0.3e-6, 0.2e-6, 0.1e-9, 0.1e-9)
TCP_10GBIT = Costs(12e-6, 3e-6, 0.8e-9, 0.1e-9)
INFINIBAND = Costs(1.5e-6, 0.5e-6, 0.1e-9, 0.1e-9)

PRESETS = {"shared memory": SHARED_MEMORY, "TCP, 10 Gbit/s": TCP_10GBIT, "InfiniBand": INFINIBAND}
"""Presets by name; the last one is the default of `simulate`. Typical values, not measurements."""

REDUCE_PER_BYTE = 0.1e-9
"""The default for a core that was not measured: 10 GB/s."""
