"""Policies and group generators as a command line names them: solo, quorum:K, any-of:M, ...; random, smart, ..."""

from __future__ import annotations

from dataclasses import dataclass

import pycollectives as pc

PLAIN = ("solo", "majority", "full")
SIZED = ("quorum", "any-of", "all-of")


@dataclass(frozen=True)
class PolicyName:
    kind: str
    size: int | None = None  # K of quorum, M of any-of and all-of

    def __str__(self) -> str:
        return self.kind if self.size is None else f"{self.kind}:{self.size}"

    @property
    def title(self) -> str:
        """The name in the head of a table: Solo, Quorum(16), AnyOf(3)."""
        name = "".join(word.capitalize() for word in self.kind.split("-"))
        return name if self.size is None else f"{name}({self.size})"

    @classmethod
    def parse(cls, text: str) -> PolicyName:
        kind, _, size = text.strip().partition(":")
        if kind in PLAIN and not size:
            return cls(kind)
        if kind in SIZED and size.isdecimal() and int(size) > 0:
            return cls(kind, int(size))
        known = ", ".join([*PLAIN, *(f"{kind}:N" for kind in SIZED)])
        raise ValueError(f"unknown policy {text!r}; expected one of {known}")

    def require(self, ranks: int) -> None:
        """Raise ValueError if the policy needs more ranks than there are."""
        if self.size is not None and self.size > ranks:
            raise ValueError(f"policy {self} needs {self.size} ranks, this run has {ranks}")

    def least_contributors(self, ranks: int) -> int:
        """Return the least number of contributors of a round."""
        if self.kind == "full":
            return ranks
        return self.size or 1 if self.kind in ("quorum", "all-of") else 1

    def build(self, seed: int) -> pc.policies.Policy:
        size = self.size or 1
        policies: dict[str, pc.policies.Policy] = {
            "solo": pc.Solo(),
            "majority": pc.Majority(seed=seed),
            "quorum": pc.Quorum(size),
            "any-of": pc.policies.AnyOf(size, seed=seed),
            "all-of": pc.policies.AllOf(size, seed=seed),
            "full": pc.Full(),
        }
        return policies[self.kind]


ALLREDUCE = "allreduce"
NCCL = "nccl"  # the allreduce by NCCL, measured wherever possible
SYNCHRONOUS = (ALLREDUCE, NCCL)
GENERATORS = (ALLREDUCE, "random", "random-unbuffered", "static", "smart", "smart-flat", "punctual")
SIZE = 3  # ranks in a group, as in Ripples 7.1.3

Generator = pc.groups.RandomGroups | pc.groups.SmartGroups | pc.groups.PunctualGroups | pc.groups.StaticGroups


def parse_generators(text: str) -> list[str]:
    """Parse a list separated by commas, or 'all'. No duplicates; the allreduce is first, as the baseline."""
    names = [name.strip() for name in text.split(",")]
    if names == ["all"]:
        names = list(GENERATORS)
    for name in names:
        if name not in GENERATORS:
            raise ValueError(f"unknown generator {name!r}; expected {', '.join(GENERATORS)}, or all")
    return list(dict.fromkeys([ALLREDUCE, *names]))


def build_generator(name: str, *, ranks: int, ranks_per_node: int, seed: int) -> Generator | None:
    """Return the generator, or None for an allreduce. Groups have three ranks, or two if there are only two."""
    size = max(2, min(SIZE, ranks))
    generators: dict[str, Generator | None] = {
        ALLREDUCE: None,
        NCCL: None,
        "random": pc.groups.RandomGroups(size, seed),
        "random-unbuffered": pc.groups.RandomGroups(size, seed, group_buffer=False),
        "static": pc.groups.StaticGroups(ranks_per_node),
        "smart": pc.groups.SmartGroups(size, seed),
        "smart-flat": pc.groups.SmartGroups(size, seed, inter_intra=False),
        "punctual": pc.groups.PunctualGroups(size, seed),
    }
    return generators[name]


def reports_every_group(name: str) -> bool:
    """Whether each synchronization is one P-Reduce. Without the group buffer it can include other groups."""
    return name != "random-unbuffered"


def meets_after(name: str, *, ranks: int, anybody_slow: bool) -> int | None:
    """Return the number of synchronizations of every worker after which all weights have certainly mixed.

    It is at least twice the number in which the model of `pycollectives.simulation.groups` reaches one in a thousand,
    with up to 64 workers. None if it has no limit: under Inter-Intra, a slow worker seldom meets another node, and the
    model may not end.
    """
    if name in SYNCHRONOUS:
        return 1
    if name == "smart" and anybody_slow:
        return None
    return 32 if name in ("random", "random-unbuffered", "smart-flat") else 8 * ranks
