"""A picture of a trace: the activities over time, one row per rank."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .traces import Event

KINDS = {  # the beginning of a span's name: its label, color and height in the picture
    "contribute": ("contribute", "tab:green", 0.8),
    "compute": ("compute", "mediumseagreen", 0.8),
    "wait": ("wait", "lightgrey", 0.8),
    "reduce": ("reduce", "tab:orange", 0.55),
    "copy": ("reduce", "tab:orange", 0.55),
    "average": ("average", "tab:orange", 0.55),
    "send": ("message", "tab:blue", 0.3),
    "recv": ("message", "tab:blue", 0.3),
    "round": ("round", "black", 0.08),
}
LEAST_SHARE = 0.002  # the least width of a span, as a share of the picture
NUMBERED_SHARE = 0.015  # the least width of a span that shows its number


def select(events: Sequence[Event], rounds: tuple[int, int]) -> list[Event]:
    """Return the events of rounds `rounds[0]` to `rounds[1]`, and those without a round that begin during them.

    Raise ValueError if no event is selected.
    """
    first, last = rounds
    of_rounds = [event for event in events if first <= event.get("args", {}).get("round", -1) <= last]
    if not of_rounds:
        raise ValueError(f"the trace has no events of rounds {first} to {last}")
    begin = min(event["ts"] for event in of_rounds)
    end = max(event["ts"] + event["dur"] for event in of_rounds)
    between = [event for event in spans(events) if "round" not in event["args"] and begin <= event["ts"] <= end]
    names = [event for event in events if event.get("ph") == "M"]
    return names + of_rounds + between


def spans(events: Sequence[Event]) -> list[Event]:
    """Return the events that have a duration."""
    return [event for event in events if event.get("ph") == "X"]


def draw(events: Sequence[Event], path: Path, title: str = "") -> None:
    """Draw the spans of a trace into an image file, whose extension selects the format.

    Raise ValueError if the trace has no spans, and ImportError without Matplotlib.
    """
    known = [(kind, event) for event in spans(events) if (kind := _kind(event["name"]))]
    if not known:
        raise ValueError("the trace has nothing to draw: no rank contributed, computed, waited, averaged or sent")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    ranks = sorted({event["pid"] for _, event in known})
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    origin = min(event["ts"] for _, event in known)
    width = max(event["ts"] + event["dur"] for _, event in known) - origin
    figure, axes = pyplot.subplots(figsize=(11, 1.4 + 0.45 * len(ranks)), layout="constrained")
    for label, color, height in dict.fromkeys(KINDS.values()):
        legend: str | None = label
        for row, rank in enumerate(ranks):
            drawn = [event for kind, event in known if kind == (label, color, height) and event["pid"] == rank]
            bars = [((event["ts"] - origin) / 1000, max(event["dur"], LEAST_SHARE * width) / 1000) for event in drawn]
            if bars:
                middle = row - 0.46 if label == "round" else row
                edge = "white" if label == "compute" else color  # iterations follow each other without a gap
                axes.broken_barh(bars, (middle - height / 2, height), facecolor=color, edgecolor=edge, label=legend)
                legend = None
            if label == "compute":
                for event, (begin, length) in zip(drawn, bars, strict=True):
                    if event["dur"] > NUMBERED_SHARE * width:
                        number = str(event["args"]["round"])
                        axes.text(begin + length / 2, row, number, ha="center", va="center", fontsize=8)
    axes.set_yticks(range(len(ranks)), [names.get(rank, f"rank {rank}") for rank in ranks])
    axes.invert_yaxis()
    axes.set_xlabel("time (ms)")
    axes.set_title(title)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _kind(name: str) -> tuple[str, str, float] | None:
    found = re.match(r"[a-z]+", name)
    return KINDS.get(found[0]) if found else None
