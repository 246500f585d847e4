"""How the survivors of a death agree on the members and whether to continue: a state machine without messages or clock.

Every rank sends every message to all others. A step is one agreement. All ranks that survive a step reach the same
decision:

  ready      The rank takes part. If it objects to the subject of the step, it gives the reason.
  withdrawn  The rank has reached its time limit. It may take part again, in a new attempt.
  commit     All ranks that are not known to be dead are ready. The message lists them, their attempts and objections.
  decided    All ranks in a commit have sent this commit. A rank that receives a decision adopts it, and sends it too.

A rank that has committed withdraws only after another rank has withdrawn an attempt that the commit names, because that
commit can no longer be decided. Therefore no rank acts on a decision while a member has withdrawn. Once the death of a
rank is known, its messages are dropped: a commit without it replaces any decision that it has sent.

The messages from one rank to another must arrive in the order in which they were sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Decision(NamedTuple):
    """The result of a step."""

    members: tuple[int, ...]  # the ranks that take part in the next action, ascending
    attempts: tuple[int, ...]  # their attempts
    objections: tuple[str | None, ...]  # their objections; None: the member agrees

    @property
    def agreed(self) -> bool:
        return all(objection is None for objection in self.objections)


class Message(NamedTuple):
    """A message to all other ranks that are not known to be dead."""

    step: int
    kind: str  # "ready", "withdrawn", "commit" or "decided"
    attempt: int = 0
    objection: str | None = None
    decision: Decision | None = None


@dataclass
class _Step:
    ready: dict[int, tuple[int, str | None]] = field(default_factory=dict)  # rank: attempt, objection
    commits: dict[int, Decision] = field(default_factory=dict)  # the newest commit of each rank
    decision: Decision | None = None


class Survivors:
    """One rank's part of the agreement. Methods return the messages to send."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank = rank
        self._size = size
        self._steps: dict[int, _Step] = {}
        self._attempt = 0
        self.dead: set[int] = set()  # the ranks that are known to be dead
        self.step = 0  # the number of the current step

    @property
    def live(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self._size) if rank not in self.dead)

    @property
    def missing(self) -> list[int]:
        """The live ranks that are not ready in this step."""
        ready = self._at(self.step).ready
        return [rank for rank in self.live if rank not in ready]

    @property
    def may_withdraw(self) -> bool:
        """Whether this rank may withdraw, because this step cannot be decided without it."""
        here = self._at(self.step)
        made = here.commits.get(self._rank)  # if this one cannot be decided, earlier ones cannot either
        return here.decision is None and (made is None or self._is_void(made, here))

    def take_part(self, objection: str | None = None) -> list[Message]:
        self._attempt += 1
        self._at(self.step).ready[self._rank] = (self._attempt, objection)
        return [Message(self.step, "ready", self._attempt, objection), *self._advance()]

    def withdraw(self) -> list[Message]:
        """Stop taking part until the next `take_part`. Requires `may_withdraw`."""
        assert self.may_withdraw
        self._at(self.step).ready.pop(self._rank, None)
        return [Message(self.step, "withdrawn", self._attempt)]

    def receive(self, source: int, message: Message) -> list[Message]:
        """Process a message of another rank."""
        if source in self.dead:
            return []
        there = self._at(message.step)
        if message.kind == "ready":
            there.ready[source] = (message.attempt, message.objection)
        elif message.kind == "withdrawn":
            there.ready.pop(source, None)
        elif message.decision is not None and message.kind == "commit":
            there.commits[source] = message.decision
        elif there.decision is None:
            there.decision = message.decision
            return [message]
        return self._advance()

    def died(self, ranks: set[int]) -> list[Message]:
        self.dead |= ranks
        return self._advance()

    def decision(self) -> Decision | None:
        """Return the decision of the current step; None if there is none yet."""
        return self._at(self.step).decision

    def next_step(self) -> None:
        """Begin the next step, after a decision."""
        assert self.decision() is not None
        self.step += 1

    def _at(self, step: int) -> _Step:
        return self._steps.setdefault(step, _Step())

    @staticmethod
    def _is_void(made: Decision, here: _Step) -> bool:
        """Whether a member has withdrawn the attempt that the commit names."""
        attempts = zip(made.members, made.attempts, strict=True)
        return any(here.ready.get(member, (0, None))[0] != attempt for member, attempt in attempts)

    def _advance(self) -> list[Message]:
        here = self._at(self.step)
        live = self.live
        if here.decision is not None or any(rank not in here.ready for rank in live):
            return []
        attempts, objections = zip(*(here.ready[rank] for rank in live), strict=True)
        decision = Decision(live, attempts, objections)
        sent = []
        if here.commits.get(self._rank) != decision:
            here.commits[self._rank] = decision
            sent.append(Message(self.step, "commit", decision=decision))
        if all(here.commits.get(rank) == decision for rank in live):
            here.decision = decision
            sent.append(Message(self.step, "decided", decision=decision))
        return sent
