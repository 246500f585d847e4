"""Measure how soon the survivors of a death continue: from the kill to their next completed step.

    mpirun --with-ft ulfm --mca async_mpi_finalize 1 -n 8 python -m pycollectives bench survive --kills 4

Ranks make rounds of a partial allreduce, or steps of another program, and are killed one after the other. The survivors
continue in it. With `--on-failure raise` they get `RankFailedError`, shrink their communicator, create the collective
again, and make a round.
`python -m pycollectives bench` names the file that explains the columns.
"""

from __future__ import annotations

import copy
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np
from mpi4py import MPI

import pycollectives as pc
from common.cli import Common, RunError, common_options, launch, parsed
from common.deaths import ENDS, HELD_S, STOPPED_S, Death
from common.other_survivors import BASELINES, Measured, measure, require_installed
from common.output import Column, Domain, Records, Table, origin, version
from common.policies import PolicyName
from common.survivors import Program, load_libraries, make_program
from common.timing import SleepingBarrier

if TYPE_CHECKING:
    from collections.abc import Iterable

TIMES = {"raise": ("detected", "shrunk", "next"), "continue": ("changed", "next"), "heal": ("changed", "next", "full")}
"""Times from the kill until a survivor has the error and the new communicator, or the new members; then until it has
the result of its first step; then until all ranks are there again."""
RESPAWN = {"respawn": True, "background": "background"}

WARMUP = 100
"""Steps before the first death is planned. The time without deaths, for the goodput, begins after them."""

OTHERS = Table(
    "",
    [],
    [
        Column("Baseline"),
        Column("Kills"),
        *(Column(f"{name} {what} (ms)", 1) for name in ("Next", "Full") for what in ("p50", "p99")),
        Column("Goodput", 3),
        Column("Steps/s"),
    ],
)


def _columns(times: tuple[str, ...]) -> list[Column]:
    quantiles = (Column(f"{name.capitalize()} {what} (ms)") for name in times for what in ("p50", "p99"))
    return [Column("Ranks"), Column("Kills"), *quantiles, Column("max (ms)"), Column("Lost"), Column("Goodput", 3)]


def _some_of(text: str, known: Iterable[str]) -> list[str]:
    """Parse names separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"expected some of {', '.join(known)}, got {unknown[0]!r}")
    return names


def _baselines(text: str) -> list[str]:
    names = list(dict.fromkeys(_some_of(text, BASELINES)))
    if names:
        require_installed(names)
    return names


@click.command(help=__doc__)
@common_options(iterations=20)
@click.option("--kills", type=click.IntRange(min=1), help="[default: as many as leave two ranks]")
@click.option(
    "--every", type=click.FloatRange(min=0), default=0.5, show_default=True, help="Mean seconds between kills."
)
@click.option(
    "--what",
    type=click.Choice(["rank", "leader", "coordinator", "node"]),
    default="rank",
    show_default=True,
    help="What to kill: any rank, the lowest rank of a node, rank 0, or all ranks of a node.",
)
@click.option(
    "--by",
    "ends",
    callback=parsed(lambda text: _some_of(text, ENDS)),
    default="kill",
    show_default=True,
    help=f"How the victims end, one after the other: some of {', '.join(ENDS)}.",
)
@click.option(
    "--disturb",
    type=click.Choice(["none", "stop", "gil"]),
    default="none",
    show_default=True,
    help=f"At each death, stop a survivor for {STOPPED_S} s, or hold its GIL for {HELD_S} s; it must stay a member.",
)
@click.option(
    "--heal",
    type=click.Choice(["none", "spare", *RESPAWN]),
    default="none",
    show_default=True,
    help="What replaces a dead rank. spare: as many of the highest ranks as are killed wait for this. respawn: "
    "the survivors start a process and wait for it. background: they continue until it has started.",
)
@click.option(
    "--program",
    type=click.Choice(["allreduce", "optimizer", "groups", "gossip", "hop", "server"]),
    default="allreduce",
    show_default=True,
    help="What the ranks do: rounds of a partial allreduce, steps of EagerOptimizer (needs PyTorch), averages of "
    "models (P-Reduce, D-PSGD or Hop), or pushes to a parameter server under BSP, in shared memory.",
)
@click.option(
    "--policy", default="majority", show_default=True, help="Policy of the rounds, one of the policies of `skew`."
)
@click.option(
    "--on-failure",
    type=click.Choice(["raise", "continue"]),
    default="continue",
    show_default=True,
    help="`on_failure` of the communicator.",
)
@click.option(
    "--baseline",
    "baselines",
    callback=parsed(_baselines),
    default="",
    help="First measure the same kills with as many processes of torchft, of restart (from a checkpoint), or of both.",
)
def survive(
    common: Common,
    kills: int | None,
    every: float,
    what: str,
    ends: list[str],
    disturb: str,
    heal: str,
    program: str,
    policy: str,
    on_failure: str,
    baselines: list[str],
) -> None:
    world = MPI.COMM_WORLD
    if heal != "none" and on_failure == "raise":
        raise click.UsageError(f"--heal {heal}: expected --on-failure continue")
    if not ends:
        raise click.UsageError(f"--by: expected some of {', '.join(ENDS)}, got none")
    if on_failure == "raise" and program != "allreduce":
        raise click.UsageError("--program: expected allreduce with --on-failure raise")
    if what == "node" and (not isinstance(common.ranks_per_node, int) or heal != "none" or on_failure == "raise"):
        raise click.UsageError("--what node: expected --ranks-per-node K, without --heal and --on-failure raise")
    if disturb != "none" and on_failure == "raise":
        raise click.UsageError("--disturb: expected --on-failure continue")
    if baselines and (program != "optimizer" or what != "rank"):
        raise click.UsageError("--baseline: expected --program optimizer and --what rank")
    at_once = common.ranks_per_node if what == "node" else 1
    is_new = heal in RESPAWN and MPI.Comm.Get_parent() != MPI.COMM_NULL  # its world has no survivors
    kills = kills or max(1, (world.size // 2 if heal == "spare" else world.size - 2) // at_once)
    dead = kills * at_once
    if dead >= world.size and heal not in RESPAWN:
        raise click.UsageError(f"--kills: expected deaths of fewer than the {world.size} ranks, got {dead}")
    ranks = world.size - dead if heal == "spare" else world.size
    try:
        name = PolicyName.parse(policy)
        if not is_new:
            name.require(ranks if heal in RESPAWN else world.size - dead)
    except ValueError as error:
        raise click.UsageError(f"--policy: {error}") from None
    if common.list_only:
        print(f"# ranks {ranks}\n{program} {name}, {kills} kills of a {what}, every {every:g} s")
        return
    source = origin(MPI.Get_library_version())
    job = None
    if not is_new:
        folder = world.bcast(tempfile.mkdtemp() if world.rank == 0 else None)
        drawn = [Death.planned(every, [common.seed, number], Path(folder), "kill") for number in range(kills)]
        others = _measure_baselines(world, baselines, ranks, drawn, heals=heal != "none")
        job = _Job(kills, Path(folder), Domain.of(world, common.ranks_per_node), others)
    load_libraries(program)
    comm = pc.Communicator(
        world,
        ranks_per_node=common.ranks_per_node,
        timeout=30.0,
        on_failure=on_failure,
        spares=world.size - ranks,
        respawn=RESPAWN.get(heal, False),
    )

    def restore(state: _Job) -> None:
        nonlocal job
        job = state

    if heal != "none":
        comm.state(lambda: job, restore)
    assert job is not None
    ranks, kills, domain = comm.size, job.kills, job.domain
    of_victims = [
        Death.planned(every, [common.seed, number], job.folder / str(number), ends[number % len(ends)])
        for number in range(kills)
    ]
    if on_failure == "continue":
        made = make_program(program, comm, name)
        seconds, *others = _continue(comm, made, of_victims, what, disturb, heals=heal != "none")
        result = dict(zip(_Continued._fields[1:], others, strict=True))
    else:
        seconds, result = [], {"goodput": None}
        for death in of_victims:
            comm, own = _survive(comm, name, _victims(_places(comm), what, death.draw), death)
            seconds += comm.mpi_comm.allgather(own)
            _check_rounds(comm, common)
    prints = comm.mpi_comm.rank == 0  # rank 0 of the launcher may be dead
    comm.close()
    if not prints:
        return
    shutil.rmtree(job.folder)
    ms, kind = 1e3 * np.array(seconds), on_failure if heal == "none" else "heal"
    table = Table(
        f"pycollectives Survival v{version()}",
        [
            f"ranks {ranks}, {domain}",
            f"{program} {name}, on_failure={on_failure}, heal {heal}",
            f"{kills} kills of a {what} by {', '.join(ends)}, every {every:g} s, disturb {disturb}, seed {common.seed}",
            f"{source['mpi']}, commit {source['commit']}",
        ],
        _columns(TIMES[kind]),
    )
    times = enumerate(TIMES[kind])
    quantiles = {time: np.percentile(ms[:, i], [50, 99, 100]).round(3).tolist() for i, time in times}
    cells = [value for p50, p99, _ in quantiles.values() for value in (p50, p99)]
    setting = {"ranks": ranks, "program": program, "heal": heal, "what": what, "kills": kills, "every_s": every}
    setting |= {"by": ends, "disturb": disturb}
    lost = len(ms) if on_failure == "raise" else 0  # each survivor loses the contribution that is in flight
    print(table.head(), file=sys.__stdout__)
    print(
        table.row([ranks, kills, *cells, quantiles["next"][2], lost, result["goodput"]]),
        file=sys.__stdout__,
        flush=True,
    )
    if job.baselines:
        print(f"#\n{OTHERS.names()}", file=sys.__stdout__)
        for other, measured in job.baselines.items():
            print(OTHERS.row(_other_row(other, kills, measured)), file=sys.__stdout__, flush=True)
    with Records(common.json) as records:
        records.write(
            {
                "bench": "survive",
                "path": domain.path,
                "ranks_per_node": domain.ranks_per_node,
                **setting,
                "policy": str(name),
                "on_failure": on_failure,
                "seed": common.seed,
                **{f"kill_to_{time}_ms": _of_quantiles(values) for time, values in quantiles.items()},
                "next_ms": ms[:, TIMES[kind].index("next")].round(1).tolist(),
                "lost": lost,
                **result,
                "wrong": 0 if common.verify else None,
                "verified": common.verify,
                **source,
            }
        )
        for other, measured in job.baselines.items():
            records.write({"bench": "survive", "baseline": other, **setting, **_other_record(measured), **source})


def _of_quantiles(values: list[float]) -> dict[str, float]:
    return dict(zip(("p50", "p99", "max"), values, strict=True))


def _quantiles_ms(seconds: list[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    return _of_quantiles(np.percentile(1e3 * np.array(seconds), [50, 99, 100]).round(1).tolist())


def _other_row(name: str, kills: int, measured: Measured) -> list[float | str | None]:
    quantiles = [_quantiles_ms(measured.next), _quantiles_ms(measured.full)]
    times = [found and found[what] for found in quantiles for what in ("p50", "p99")]
    return [name, str(kills), *times, measured.goodput, measured.steps_per_s]


def _other_record(measured: Measured) -> dict[str, object]:
    full = _quantiles_ms(measured.full)
    return {
        "kill_to_next_ms": _quantiles_ms(measured.next),
        **({} if full is None else {"kill_to_full_ms": full}),
        "goodput": round(measured.goodput, 4),
        "steps_per_s": round(measured.steps_per_s, 2),
    }


def _measure_baselines(
    world: MPI.Comm, names: list[str], ranks: int, deaths: list[Death], *, heals: bool
) -> dict[str, Measured]:
    """Measure by rank 0, while the others sleep; collective."""
    found: dict[str, Measured] = {}
    failure = None
    if names and world.rank == 0:
        try:
            for name in names:
                drawn = [(death.delay, copy.deepcopy(death.draw)) for death in deaths]
                found[name] = measure(name, ranks=ranks, deaths=drawn, heals=heals)
        except RunError as error:
            failure = error
    SleepingBarrier(world).wait()
    found, failure = world.bcast((found, failure))
    if failure is not None:
        raise failure
    return found


class _Job(NamedTuple):
    kills: int
    folder: Path  # gets the times of deaths
    domain: Domain
    baselines: dict[str, Measured]


def _places(comm: pc.Communicator) -> list[tuple[int, int]]:
    """Return the members, ascending, with their nodes."""
    return list(zip(comm.members, comm.nodes, strict=True))


def _victims(places: list[tuple[int, int]], what: str, choice: np.random.Generator) -> list[int]:
    """Return the ranks that die next, the same on all ranks."""
    nodes = [[rank for rank, node in places if node == number] for number in sorted({node for _, node in places})]
    if what == "node":
        return nodes[choice.integers(len(nodes))]
    ranks = [rank for rank, _ in places]
    among = {"rank": ranks, "leader": [node[0] for node in nodes], "coordinator": ranks[:1]}[what]
    return [int(choice.choice(list(among)))]


def _continue(
    comm: pc.Communicator, program: Program, deaths: list[Death], what: str, disturb: str, *, heals: bool
) -> _Continued:
    """Make steps while victims die, and are replaced if `heals`."""
    lost, changed = Counter[int](), [0.0]  # by rank, and the time of the newest change

    def note(dead: tuple[int, ...]) -> None:
        lost.update(dead)
        changed[0] = time.monotonic()

    comm.on_change(lambda change: note(change.lost))
    past: list[list[int]] = []  # the victims
    if heals:

        def restore(state: tuple[list[list[int]], object]) -> None:
            past[:], values = state
            program.restore(values)

        comm.state(lambda: (past, program.state()), restore)
    was_there = not past
    for _ in range(WARMUP if was_there else 0):
        time.sleep(0.001)
        program.step()
    own, expected, work = [], Counter[int](), _Work(comm)

    def step() -> None:
        time.sleep(0.001)
        program.step()
        work.note_step()

    places = _places(comm)
    for death in deaths[len(past) :]:
        # Not from the present members: for a rank that was stopped, others may already be dead.
        places = _places(comm) if heals else [(rank, node) for rank, node in places if rank not in expected]
        victims = _victims(places, what, death.draw)
        past.append(victims)
        expected.update(victims)
        if comm.rank in victims:
            death.die_later()
        elif disturb != "none" and comm.rank == int(death.draw.choice([r for r, _ in places if r not in victims])):
            death.disturb_later(disturb)
        while any(lost[rank] < deaths_of for rank, deaths_of in expected.items()):
            step()
        work.note_death(death.time())
        times = [changed[0], time.monotonic()]
        while heals and len(comm.members) < comm.size:
            step()
        own.append(tuple(at - death.time() for at in (*times, *([time.monotonic()] if heals else []))))
    if was_there and lost != expected:
        raise RunError(f"expected the deaths of {sorted(expected)}, but the ranks {sorted(lost)} were excluded")
    goodput = work.goodput() if was_there else None
    program.end()
    of_all = comm.mpi_comm.allgather(_Continued(own, goodput, work.longest_pause, work.growth_mb()))
    fractions = [each.goodput for each in of_all if each.goodput is not None]
    return _Continued(
        [times for each in of_all for times in each.seconds],
        round(np.mean(fractions), 4) if fractions else None,
        round(max(each.longest_pause_s for each in of_all), 3),
        round(max(each.growth_mb for each in of_all), 1),
    )


class _Continued(NamedTuple):
    seconds: list[tuple[float, ...]]  # `TIMES` of survivors
    goodput: float | None  # the mean over ranks that were there from the beginning; None if all of these died
    longest_pause_s: float  # without a step of a living rank
    growth_mb: float  # of a living rank's resident memory since its first step


class _Work:
    """The steps of one rank. Each counts for all live ranks, since their contributions of a step are all delivered."""

    def __init__(self, comm: pc.Communicator) -> None:
        self._comm, self._begin, self._done = comm, time.monotonic(), 0
        self._rate: float | None = None
        self._newest, self.longest_pause = self._begin, 0.0
        self._memory = _resident_mb()

    def note_step(self) -> None:
        self._done += len(self._comm.members)
        previous, self._newest = self._newest, time.monotonic()
        self.longest_pause = max(self.longest_pause, self._newest - previous)

    def growth_mb(self) -> float:
        """Return the growth of the memory of this process."""
        return _resident_mb() - self._memory

    def note_death(self, when: float) -> None:
        if self._rate is None:  # the newest step came after the recovery
            self._rate = (self._done - len(self._comm.members)) / (when - self._begin)

    def goodput(self) -> float | None:
        """Return the work that was done, divided by the work that would have been done without deaths.

        None if there was no work before the first death.
        """
        if not self._rate:
            return None
        return self._done / (self._rate * (time.monotonic() - self._begin))


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _survive(
    comm: pc.Communicator, policy: PolicyName, victims: list[int], death: Death
) -> tuple[pc.Communicator, tuple[float, ...]]:
    """Make rounds until the victims die; return the communicator of the survivors, and the `TIMES` in seconds."""
    ar = comm.partial_allreduce(count=1, dtype=np.int64, policy=policy.build(0), missed="sum")
    if comm.rank in victims:
        death.die_later()
    one = np.ones(1, np.int64)
    try:
        while True:
            ar.allreduce(one)
            time.sleep(0.001)  # a step
    except pc.RankFailedError:
        detected = time.monotonic()
    new = comm.shrink(timeout=30.0)
    shrunk = time.monotonic()
    with new.partial_allreduce(count=1, dtype=np.int64, policy=pc.Full()) as first:
        total, _ = first.allreduce(one)
        done = time.monotonic()
        if int(total[0]) != new.size:
            raise RunError(f"the first round of {new.size} survivors summed {int(total[0])} contributions")
    died = death.time()
    return new, tuple(at - died for at in (detected, shrunk, done))


def _check_rounds(comm: pc.Communicator, common: Common) -> None:
    """Make rounds, and check that every contribution is in exactly one."""
    one = np.ones(1, np.int64)
    with comm.partial_allreduce(count=1, dtype=np.int64, policy=pc.Solo(), missed="sum") as ar:
        total = 0
        for _ in range(common.iterations):
            total += int(ar.allreduce(one)[0][0])
        ar.flush()
        total += int(ar.result[0])
    if common.verify and total != common.iterations * comm.size:
        raise RunError(f"{comm.size} ranks made {common.iterations} contributions each, and received {total}")


if __name__ == "__main__":
    launch(survive)
