"""Group generators as a benchmark's command line names them: random, smart, ..., and the allreduce beside them."""

from __future__ import annotations

import pycollectives as pc

ALLREDUCE = "allreduce"
GENERATORS = (ALLREDUCE, "random", "random-unbuffered", "static", "smart", "smart-flat", "punctual")
SIZE = 3  # of a group, as in Ripples 7.1.3

Generator = pc.RandomGroups | pc.SmartGroups | pc.PunctualGroups | pc.StaticGroups


def parse_generators(text: str) -> list[str]:
    """Of a list separated by commas, or 'all'; each once, the allreduce first: the others are compared with it."""
    names = [name.strip() for name in text.split(",")]
    if names == ["all"]:
        names = list(GENERATORS)
    for name in names:
        if name not in GENERATORS:
            raise ValueError(f"unknown generator {name!r}; expected {', '.join(GENERATORS)}, or all")
    return list(dict.fromkeys([ALLREDUCE, *names]))


def build_generator(name: str, *, ranks: int, ranks_per_node: int, seed: int) -> Generator | None:
    """None for the allreduce. Groups of three, of two if there are no more ranks."""
    size = max(2, min(SIZE, ranks))
    generators: dict[str, Generator | None] = {
        ALLREDUCE: None,
        "random": pc.RandomGroups(size, seed),
        "random-unbuffered": pc.RandomGroups(size, seed, group_buffer=False),
        "static": pc.StaticGroups(ranks_per_node),
        "smart": pc.SmartGroups(size, seed),
        "smart-flat": pc.SmartGroups(size, seed, inter_intra=False),
        "punctual": pc.PunctualGroups(size, seed),
    }
    return generators[name]


def reports_every_group(name: str) -> bool:
    """Whether each synchronisation is one P-Reduce: not without the group buffer, which performs others on the way."""
    return name != "random-unbuffered"


def meets_after(name: str, *, ranks: int, anybody_slow: bool) -> int | None:
    """Synchronisations of every worker after which all weights have met, for what is certain to have mixed them.

    At least twice what the model of `pycollectives.simulation_groups` needs for one in a thousand, at up to 64 workers.
    None: it can take any time. Under Inter-Intra a slow worker seldom meets another node, and the model may not end.
    """
    if name == ALLREDUCE:
        return 1
    if name == "smart" and anybody_slow:
        return None
    return 32 if name in ("random", "random-unbuffered", "smart-flat") else 8 * ranks
