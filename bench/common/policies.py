"""The policy of a partial allreduce as a benchmark's command line names it: solo, majority, quorum:K, any_of:M, ..."""

from __future__ import annotations

from dataclasses import dataclass

import pycollectives as pc

PLAIN = ("solo", "majority", "full")
SIZED = ("quorum", "any_of", "all_of")


@dataclass(frozen=True)
class PolicyName:
    kind: str
    size: int | None = None  # K of quorum, M of any_of and all_of

    def __str__(self) -> str:
        return self.kind if self.size is None else f"{self.kind}:{self.size}"

    @property
    def title(self) -> str:
        """As the head of a table shows it: Solo, Quorum(16), AnyOf(3)."""
        name = "".join(word.capitalize() for word in self.kind.split("_"))
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
        """ValueError if the policy needs more ranks than there are."""
        if self.size is not None and self.size > ranks:
            raise ValueError(f"policy {self} needs {self.size} ranks, this run has {ranks}")

    def least_contributors(self, ranks: int) -> int:
        """How many ranks' data every round must have in it."""
        if self.kind == "full":
            return ranks
        return self.size or 1 if self.kind in ("quorum", "all_of") else 1

    def build(self, seed: int) -> pc.Policy:
        size = self.size or 1
        policies: dict[str, pc.Policy] = {
            "solo": pc.Solo(),
            "majority": pc.Majority(seed=seed),
            "quorum": pc.Quorum(size),
            "any_of": pc.AnyOf(size, seed=seed),
            "all_of": pc.AllOf(size, seed=seed),
            "full": pc.Full(),
        }
        return policies[self.kind]
