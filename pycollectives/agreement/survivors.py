"""How the survivors of a death agree on who they are, and that all of them go on: a state machine without messages.

All ranks send to all. A step is one agreement, and ends in the same decision on every rank that survives it:

  ready      A rank that has come says so, and whether it agrees to what the step asks.
  withdrawn  It has given up waiting. It may come again, by a new attempt.
  commit     Every rank that it takes for alive is ready: it names these, their attempts, and the answer.
  decided    Every one of these has committed to the same. Whoever hears of a decision has decided, too, and says so.

A rank that has committed withdraws only if an attempt that it has committed to was withdrawn: nobody can have decided
that. So nobody goes into what follows a decision while a rank that it counts on has given up. What a rank has sent
before it died is dropped once its death is known: a commit without it says that no decision of it counts.

The messages of one rank arrive at another in the order in which they were sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Decision", "Message", "Survivors"]


class Decision(NamedTuple):
    """What the survivors have agreed on in a step."""

    members: tuple[int, ...]  # who takes part in what follows, ascending
    attempts: tuple[int, ...]  # of these
    agreed: bool  # all members


class Message(NamedTuple):
    """To every other rank that is alive."""

    step: int
    kind: str  # "ready", "withdrawn", "commit" or "decided"
    attempt: int = 0
    agrees: bool = False
    decision: Decision | None = None


@dataclass
class _Step:
    ready: dict[int, tuple[int, bool]] = field(default_factory=dict)  # rank: attempt, whether it agrees
    commits: dict[int, Decision] = field(default_factory=dict)  # the newest of each rank
    decision: Decision | None = None


class Survivors:
    """One rank's part.

    Attributes
    ----------
    dead
        The ranks that it knows to be dead.
    step
        The number of the current step; that of the first is 0.
    """

    def __init__(self, rank: int, size: int) -> None:
        """Of rank `rank` among 0 ... size - 1."""
        self._rank = rank
        self._size = size
        self._steps: dict[int, _Step] = {}
        self._attempt = 0
        self.dead: set[int] = set()
        self.step = 0

    @property
    def live(self) -> tuple[int, ...]:
        """The ranks that are not known to be dead."""
        return tuple(rank for rank in range(self._size) if rank not in self.dead)

    @property
    def missing(self) -> list[int]:
        """Who is not ready in this step."""
        ready = self._at(self.step).ready
        return [rank for rank in self.live if rank not in ready]

    @property
    def may_withdraw(self) -> bool:
        """Whether nobody can have decided this step, or will without this rank."""
        here = self._at(self.step)
        made = here.commits.get(self._rank)  # whatever voids the newest voids those before it
        return here.decision is None and (made is None or self._is_void(made, here))

    def come(self, *, agrees: bool = True) -> list[Message]:
        """Take part in the current step: what to send."""
        self._attempt += 1
        self._at(self.step).ready[self._rank] = (self._attempt, agrees)
        return [Message(self.step, "ready", self._attempt, agrees), *self._advance()]

    def withdraw(self) -> list[Message]:
        """Take no part any more, until `come`: what to send. Only if `may_withdraw`."""
        assert self.may_withdraw
        self._at(self.step).ready.pop(self._rank, None)
        return [Message(self.step, "withdrawn", self._attempt)]

    def receive(self, source: int, message: Message) -> list[Message]:
        """Take a message of another rank: what to send."""
        if source in self.dead:
            return []
        there = self._at(message.step)
        if message.kind == "ready":
            there.ready[source] = (message.attempt, message.agrees)
        elif message.kind == "withdrawn":
            there.ready.pop(source, None)
        elif message.decision is not None and message.kind == "commit":
            there.commits[source] = message.decision
        elif there.decision is None:
            there.decision = message.decision
            return [message]
        return self._advance()

    def died(self, ranks: set[int]) -> list[Message]:
        """Take note of deaths: what to send."""
        self.dead |= ranks
        return self._advance()

    def decision(self) -> Decision | None:
        """Return what the current step has decided; this rank takes part in it."""
        return self._at(self.step).decision

    def next_step(self) -> None:
        """Begin the next one, after a decision."""
        assert self.decision() is not None
        self.step += 1

    def _at(self, step: int) -> _Step:
        return self._steps.setdefault(step, _Step())

    @staticmethod
    def _is_void(made: Decision, here: _Step) -> bool:
        """Whether a member has withdrawn what this counts on."""
        attempts = zip(made.members, made.attempts, strict=True)
        return any(here.ready.get(member, (0, False))[0] != attempt for member, attempt in attempts)

    def _advance(self) -> list[Message]:
        here = self._at(self.step)
        live = self.live
        if here.decision is not None or any(rank not in here.ready for rank in live):
            return []
        attempts = tuple(here.ready[rank][0] for rank in live)
        decision = Decision(live, attempts, all(here.ready[rank][1] for rank in live))
        sent = []
        if here.commits.get(self._rank) != decision:
            here.commits[self._rank] = decision
            sent.append(Message(self.step, "commit", decision=decision))
        if all(here.commits.get(rank) == decision for rank in live):
            here.decision = decision
            sent.append(Message(self.step, "decided", decision=decision))
        return sent
