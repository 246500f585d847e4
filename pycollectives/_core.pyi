"""The extension module: engine, partial allreduce, schedules, simulator. Private; the package's own modules wrap it.

What it raises are the classes of `support.errors`, and Python's own ValueError, TypeError and RuntimeError.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, final

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

__version__: str
interface: str  # SHA-256 of this file when the extension was built

def mpi_library_version() -> str:
    """What MPI_Get_library_version says to this module; must equal mpi4py's."""

def cuda_availability() -> dict[str, Any]:
    """Whether CUDA devices can be used: {"reason": why not, or empty, "has_failed": that is an error of a device,
    "driver_version": 0 without one, "kernels": who compiles them, and for what, "devices"}. A device has {"name",
    "capability", "bytes", "pci_bus_id", "why_not_shared": among processes, or empty, "one_process_at_a_time",
    "reaches": by number, whose memory}."""

def device_of(data: int) -> int | None:
    """The number of the CUDA device that an address is of; None if it is of none."""

def costs_of_allreduce(
    size: int,
    count: int,
    element_bytes: int,
    *,
    latency: float,
    overhead: float,
    gap_per_byte: float,
    reduce_per_byte: float,
    header_bytes: float,
) -> dict[str, float]:
    """Seconds of each algorithm among which "auto" chooses, with the variants NAME:K, as they state it: LogGP."""

def costs_of_activation(
    size: int, *, latency: float, overhead: float, gap_per_byte: float, header_bytes: float
) -> dict[str, float]:
    """Seconds until a round that one rank starts has reached all, and of the messages of the busiest rank if all start
    it, by the name of the activation."""

def parts_of_allreduce(algorithm: str, size: int) -> int:
    """Elements with which a plan has all its messages; with more they only get longer."""

def measure_messages(engine: Engine, *, other: int, timeout: float | None = None) -> tuple[float, float, float]:
    """L and o in seconds and G in seconds per byte, measured between rank 0 and another; collective, the same on all
    ranks."""

def time_of_plans(
    algorithm: str,
    size: int,
    *,
    count: int,
    element_bytes: float,
    activation: str = "",  # empty: of the allreduce only
    latency: float,
    overhead: float,
    gap_per_byte: float,
    reduce_per_byte: float,
    one_for_all: bool = False,  # of a plan in which all ranks do the same at the same time
) -> float:
    """Seconds of the plans of all ranks in virtual time, until the last has its result: as in `simulate`, if all
    contribute at once under Full."""

def algorithms() -> list[dict[str, Any]]:
    """Registered allreduce algorithms, by name: {"name", "steps", "bytes", "reference"}, all text."""

def own_process() -> tuple[int, int]:
    """The number of this process, and when it started: together never used again."""

def close_all() -> None:
    """Serves the other ranks until all have closed every engine on MPI, at most `exit_timeout`; else ends the job."""

@final
class Engine:
    """One rank's engine on one communicator: transport, collectives, and a share of the progress thread."""

    @staticmethod
    def mpi(
        comm: MPI.Comm,
        *,
        local_ranks: int,
        neighbours: Sequence[tuple[int, int, int]] = ...,
        progress: str = "thread",
        exit_timeout: float | None = 60.0,
    ) -> Engine:
        """Duplicates `comm` (collective), `local_ranks` of whose ranks share this machine.

        neighbours: (rank, process number, start time) of the other ranks whose processes can be seen from here;
        progress: "thread" or "caller"; exit_timeout: seconds of `close_all`.
        """
    @staticmethod
    def loopback(size: int, *, progress: str = "thread", delay: float = 0.0, seed: int = 0) -> list[Engine]:
        """`size` engines in this process, joined by mailboxes; every message is delayed by up to `delay` seconds."""
    @property
    def rank(self) -> int: ...
    @property
    def in_own_process(self) -> bool:
        """False in a fork of the process that made it."""
    @property
    def size(self) -> int: ...
    @property
    def transport(self) -> str: ...
    @property
    def progress(self) -> str: ...
    def compare(self, local: bytes, *, what: str, timeout: float | None = None) -> list[bytes] | None:
        """Collective comparison of a short (at most 4096 B) byte string, in O(log P) messages: None if it is the same
        on all ranks, else that of every rank. StallError names the ranks that did not call."""
    def check_next_id(self) -> None:
        """`RuntimeError` if so many collectives were created that the next would take the tags of one that is open."""
    def advance(self) -> bool:
        """One pass of progress by the caller; whether anything moved."""
    def start_heartbeat(self, *, machines: Sequence[int], limit: float) -> None:
        """Takes the ranks of a machine for dead if it is silent for `limit` seconds; on all ranks.

        machines: the number of each rank's.
        """
    def check_usable(self) -> None:
        """Raises what every call does, if it has failed."""
    def check_process(self) -> None:
        """ClosedError in a fork of the process that made it."""
    def leave(self) -> None:
        """Tells others that this rank comes to no comparison any more: those that wait in one give up."""
    def close(self, *, timeout: float | None = None) -> None:
        """Collective: waits until every rank has closed every collective, then frees the communicators.
        StallError names who has not. Idempotent."""
    def mpi_duplicate(self) -> MPI.Intracomm | None:
        """The communicator of its messages, whose tags are all below MPI.TAG_UB; None on threads, and once closed."""
    def acknowledge_failed(self) -> list[int] | None:
        """Returns the ranks that MPI reports dead, and lets messages of the others through; None if MPI cannot."""
    @property
    def all_closed(self) -> bool:
        """Whether all ranks have closed, so that others may have ended."""
    def stop(self, failed: Sequence[int]) -> None:
        """Ends all progress, because these ranks have died; every further call raises RankFailedError."""
    def stop_all(self) -> None:
        """The same on every rank, without a death: the RankFailedError names no rank."""
    def supersede(self) -> None:
        """Its survivors have another engine: suppresses reports of its failure at the end of the program."""
    def announce(self, text: str) -> None:
        """Lets the other ranks print what has gone wrong on this one, the first time. Waits for nobody."""
    def abort(self) -> None:
        """Closes at once and waits for nobody; the engine serves the others until the process ends."""
    def flight_record(self) -> str:
        """The newest rounds as this rank has seen them and what it waits for, as JSON."""

@final
class PartialAllreduce:
    def __init__(
        self,
        engine: Engine,
        *,
        nodes: Sequence[int] | None = None,  # of each rank; None: every rank is a node of its own
        segment_bytes: int = ...,  # of the reduction within a node
        timeout: float | None = None,  # of making a board
        default_timeout: float | None = None,  # of calls whose `timeout` is None; None: no limit
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        dtype_name: str,
        convert: Callable[[Any], Any],  # of a contribution that is not a plain array of shape and dtype
        writable: Callable[[Any], NDArray[Any]],  # ... and of what a result is written to: an array over it, of `shape`
        op: str,
        policy: str,  # "solo" | "majority" | "quorum" | "any_of" | "all_of" | "full"
        policy_size: int = 0,  # k of quorum, m of any_of and all_of
        seed: int = 0,
        grace: float = 0.0,  # -1: auto
        late: str = "accumulate",
        missed: str = "latest",
        max_staleness: int | None = None,
        activation: str = "tree",  # "tree" | "dissemination"
        algorithm: str = "recursive_doubling",
        history: int = 8,
        recoverable: bool = False,
        name: str = "",
    ) -> None:
        """Collective. Ranks create the same objects in the same order; they compare whether each has its memory."""
    def contribute(self, x: Any, *, stream: None = None) -> Round:
        """`x`: any C-contiguous buffer of exactly the right number of bytes (checked). Waits for nobody, and so keeps
        the GIL if that takes microseconds: on a board, if the data of all ranks is small."""
    def contribute_and_wait(self, x: Any, *, timeout: float | None = None) -> RoundInfo:
        """`contribute(x).wait(timeout=...)` without the request; a wrong limit is refused before anything is sent."""
    def allreduce(
        self, x: Any, out: Any | None = None, *, timeout: float | None = None
    ) -> tuple[NDArray[Any], RoundInfo]:
        """The same, and the result: written to `out`, or what `result` gives."""
    @property
    def result(self) -> NDArray[Any]:
        """Read-only array of the given shape and dtype; RuntimeError before a call was given a round."""
    def start_flush(self) -> None:
        """What `flush` begins with: this rank leaves, and no round waits for it. `flush` is to follow."""
    def flush(self, *, timeout: float | None = None) -> RoundInfo:
        """Collective. After a StallError it can be called again, and goes on with the same flush."""
    def c_handle(self, *, timeout: float | None = None) -> object:
        """The handle for calls from C, a capsule, which lives as long as this object. `timeout`: their default."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    def abort(self) -> int:
        """Throws away what waits to be taken and leaves for good; the number of contributions discarded."""
    def recovery_state(self) -> dict[str, Any]:
        """After a death: this rank's state of the rounds. All surviving ranks must have stopped."""
    def continue_from(self, lacking: int, missed: int, values: bytes | None, divisor: int) -> None:
        """Before the first round: the state of the former collective, and rounds that this rank has not received."""
    def deposit(self, x: Any) -> None:
        """Before the first round: hands data over without an arrival."""
    def receive_pending(self) -> None:
        """Makes `result` of the sum that `continue_from` got, if no call has received it."""
    def set_result(self, values: bytes | None, divisor: int) -> None:
        """Makes `result` of values that `recovery_state` has returned; None: the identity."""
    def set_fallback(
        self, fallback: Callable[[Any, Any, float | None, Any, list[int] | None], tuple[Any, RoundInfo]]
    ) -> None:
        """From now on `allreduce` calls `fallback(x, out, timeout, stream, dead)` unless calls are direct. `dead`: the
        ranks whose death has interrupted a direct call; then `timeout` is the rest."""
    def begin_direct(self) -> None:
        """From now on calls of `allreduce` are direct: the engine keeps the contributions that no round contains."""
    def end_direct(self, *, waits: bool) -> list[tuple[int, NDArray[Any], bool, bool, Round | None]]:
        """Returns these contributions: number, values, whether the call was interrupted, whether by a death, and its
        request, if it is known. RuntimeError if a call is in progress, unless `waits` for another thread's end."""
    @property
    def direct_user(self) -> int:
        """The thread of the newest direct call, as `threading.get_ident`."""
    @property
    def contributions(self) -> int:
        """The number of contributions; it is the number of the newest."""
    @property
    def ended(self) -> bool:
        """Whether all ranks have left, and no data is pending."""
    @property
    def delivered(self) -> int:
        """Number of the newest contribution in a completed round; 0: none, or unknown at the moment."""
    @property
    def in_own_process(self) -> bool:
        """False in a fork of the process that made it."""
    def statistics(self) -> dict[str, Any]:
        """rounds, contributions, included, late, missed, overrun, waited, memory_bytes; stragglers: rank, rounds
        without its data, the most in a row."""
    @property
    def closed(self) -> bool: ...
    @property
    def has_contributed(self) -> bool:
        """Whether this thread has contributed since the last flush."""
    @property
    def rounds(self) -> int:
        """Rounds completed at this rank."""
    @property
    def name(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def schedule(self) -> Schedule | None:
        """This rank's plan; None on a board, which has none."""

@final
class DevicePartialAllreduce:
    """The same of arrays on a CUDA device, which are given by address. Streams are handles, as for DLPack."""

    def __init__(
        self,
        engine: Engine,
        *,
        device: int,  # of this rank
        nodes: Sequence[int],
        timeout: float | None = None,
        default_timeout: float | None = None,
        count: int,
        dtype_name: str,
        op: str,
        policy: str,
        policy_size: int = 0,
        seed: int = 0,
        grace: float = 0.0,  # -1: auto
        late: str = "accumulate",
        missed: str = "latest",
        max_staleness: int | None = None,
        activation: str = "tree",
        algorithm: str = "recursive_doubling",
        piece_bytes: int = 1048576,  # copied to the host, and back, at a time, between nodes
        history: int = 8,
        name: str = "",
    ) -> None:
        """Collective. Allocates all that it will need: what fails on one rank fails on all."""
    def device_of(self, data: int) -> int | None:
        """As the function of that name; a device that fails fails the collective."""
    def contribute(self, data: int, streams: Sequence[int]) -> Round:
        """Takes the values when `streams` have done what they were given; what they are given later may overwrite them.
        `ValueError` if one of them takes no work: of another device, destroyed, or being captured."""
    def give(self, out: int, stream: int) -> None:
        """Copies the newest result to `out`, in order with `stream`."""
    def fetch(self, into: NDArray[Any]) -> None:
        """Copies the newest result to the host."""
    @property
    def shown(self) -> int:
        """Memory for one result, for `give`."""
    def start_flush(self) -> None: ...
    def flush(self, *, timeout: float | None = None) -> RoundInfo: ...
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]: ...
    def abort(self) -> int: ...
    @property
    def in_own_process(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def has_contributed(self) -> bool: ...
    @property
    def rounds(self) -> int: ...
    @property
    def name(self) -> str: ...

@final
class ExplicitGroups:
    """P-Reduces in groups that the caller gives; one per engine, made by each rank when it needs it."""

    def __init__(self, engine: Engine, *, nodes: Sequence[int]) -> None:
        """`nodes`: of each rank; those of one node may share memory."""
    def reduce(
        self,
        values: Any,  # PEP 3118, C-contiguous and writable: not checked beyond that
        *,
        dtype_name: str,
        members: Sequence[int],  # ascending, with this rank
        op: str,
        algorithm: str,  # the same on all members; "board": in shared memory
        caller: str,  # of kCallers: the same on all members
        timeout: float | None = None,
    ) -> None:
        """Collective among `members`, in place. StallError after `timeout` seconds names who has not come."""
    def reduce_on_device(
        self,
        device: int | None,  # None: that of the memory
        data: int,
        *,
        count: int,
        owner: object,  # keeps the memory at `data`
        streams: Sequence[int],
        dtype_name: str,
        members: Sequence[int],
        op: str,
        algorithm: str,  # not "board"
        caller: str,
        timeout: float | None = None,
    ) -> None:
        """The same of an array on a CUDA device, when `streams` have done what they were given."""
    def c_handle(
        self,
        *,
        nodes: Sequence[int],
        count: int,
        dtype_name: str,
        op: str,
        algorithms: Sequence[str],  # by number of members
        on_board: bool,  # groups of one node use shared memory
        timeout: float | None = None,
    ) -> object:
        """The capsule of the handle for calls from C with such arrays, which lives as long as this object."""
    def refuse(self, members: Sequence[int], reason: str) -> None:
        """Refuse the next P-Reduce. The other members raise MismatchError with the reason; `reduce` stays usable."""
    def leave(self) -> None:
        """No call any more; returns at once."""
    @property
    def cache_hits(self) -> int: ...
    @property
    def cache_misses(self) -> int: ...

@final
class PartialReduce:
    def __init__(
        self,
        engine: Engine,
        *,
        count: int,
        dtype_name: str,
        op: str,
        by_staleness: bool = False,  # float types, AVG
        generator: GroupGenerator | None = None,  # its options are taken; None: `average` is given the groups
        coordinator_rank: int = 0,
        algorithms: Sequence[str],  # by the number of members, from 0 to the number of ranks
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of making that
        name: str,
    ) -> None:
        """Every rank must create the same objects in the same order; if ranks share memory, collective."""
    @staticmethod
    def check(
        engine: Engine,
        *,
        count: int,
        dtype_name: str,
        op: str,
        by_staleness: bool = False,
        algorithms: Sequence[str],
        on_device: bool = False,
    ) -> None:
        """Raises what is wrong with the plans of its groups: before ranks agree to make one."""
    def average(
        self, values: Any, *, step: int, group: Sequence[int] = (), timeout: float | None = None
    ) -> tuple[tuple[int, ...], int, float, int]:
        """Averages in place with the next group: (group, sequence, waited in seconds, conflicts)."""
    def leave(self, values: Any | None = None) -> None:
        """Leaves; what is still to be performed is performed with a copy of `values`, or without. Idempotent."""
    def c_handle(self, *, timeout: float | None = None) -> object:
        """The handle for calls from C, a capsule, which lives as long as this object. `timeout`: their default."""
    @property
    def next_step(self) -> int:
        """The number after that of the last call of `average`, also from C."""
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]:
        """averages, cache_hits, cache_misses, waited, memory_bytes."""
    @property
    def closed(self) -> bool: ...

@final
class DevicePartialReduce:
    """The same of arrays on a CUDA device, which are given by address. Streams are handles, as for DLPack."""

    def __init__(
        self,
        engine: Engine,
        *,
        device: int,  # of this rank
        count: int,
        dtype_name: str,
        op: str,
        by_staleness: bool = False,
        generator: GroupGenerator | None = None,
        coordinator_rank: int = 0,
        algorithms: Sequence[str],
        piece_bytes: int = 1048576,  # copied to the host, and back, at a time, between nodes
        nodes: Sequence[int],
        timeout: float | None = None,
        name: str,
    ) -> None:
        """Collective. Allocates all that it will need on devices: what fails on one rank fails on all."""
    def device_of(self, data: int) -> int | None:
        """As the function of that name; a device that fails fails the collective."""
    def average(
        self,
        data: int,
        *,
        owner: object,  # keeps it alive
        streams: Sequence[int],
        step: int,
        group: Sequence[int] = (),
        timeout: float | None = None,
    ) -> tuple[tuple[int, ...], int, float, int]:
        """Waits until `streams` have done what they were given, then as `PartialReduce.average`."""
    def leave(self, data: int | None = None, streams: Sequence[int] = ()) -> None:
        """Leaves, as `PartialReduce.leave`."""
    @property
    def failed(self) -> bool:
        """Whether a device has failed, of any rank: then all ranks have left, or do as soon as they can."""
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]:
        """averages, cache_hits, cache_misses, waited, memory_bytes."""
    @property
    def closed(self) -> bool: ...

class PairwiseAveraging:
    def __init__(
        self,
        engine: Engine,
        *,
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of making that
        initial: Any,  # PEP 3118, C-contiguous, as all buffers here: not checked beyond their length
        name: str,
        count: int,
        dtype_name: str,  # of floats
        segment_bytes: int,  # as it is held; 0: the model is one segment
        neighbors: Sequence[int],
        initiates: bool,  # requests averages of neighbors on other nodes
        random: bool,  # which neighbor is next
        seed: int,
        per_step: bool,
        period: float,  # seconds between the beginnings of two averages; 0: by how long they take
        acceleration: tuple[float, float] | None,  # what is kept of x - x~, and alpha~
        by_frequency: bool,
    ) -> None:
        """Collective. Every rank creates the same objects in the same order."""
    @staticmethod
    def check(engine: Engine, **options: Any) -> None:
        """Raises what is wrong with its messages, given all but the first four arguments: before ranks agree."""
    def read(self, out: Any) -> None: ...
    def read_kept(self, out: Any) -> None:
        """What averages keep the sum of, as it is held: float32 or float64."""
    def apply(self, delta: Any) -> None: ...
    def c_handle(self, *, timeout: float | None = None) -> object:
        """The handle for calls from C, a capsule, which lives as long as this object. `timeout`: their default."""
    def replace_held(self, before: Any, values: Any) -> None:
        """Replaces the model, but for what was applied since `read_kept` gave `before`; no average may be under way."""
    def pause(self, *, timeout: float | None = None) -> None:
        """Begins no average any more and waits for the one that is under way; else StallError, and it resumes."""
    def resume(self) -> None: ...
    def set_told(self, dead: Sequence[int]) -> None:
        """The application knows of these deaths, or, if empty, of one that nobody could name."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    def statistics(self) -> dict[str, Any]: ...
    @property
    def held_dtype_name(self) -> str: ...
    @property
    def closed(self) -> bool: ...

@final
class DevicePairwiseAveraging:
    """The same of models on CUDA devices. Arrays are given by address, and streams by handle, as for DLPack."""

    def __init__(
        self,
        engine: Engine,
        *,
        device: int,  # of this rank
        nodes: Sequence[int],
        timeout: float | None = None,
        initial: int,
        streams: Sequence[int],  # after whose work it is there
        name: str,
        count: int,
        dtype_name: str,
        segment_bytes: int,
        neighbors: Sequence[int],
        initiates: bool,
        random: bool,
        seed: int,
        per_step: bool,
        period: float,
        acceleration: tuple[float, float] | None,
        by_frequency: bool,
    ) -> None:
        """Collective. Allocates all that it will need: what fails on one rank fails on all."""
    def device_of(self, data: int) -> int | None:
        """As the function of that name; a device that fails ends this rank's part."""
    def read(self, out: int, streams: Sequence[int]) -> None:
        """Waits until `streams` have done what they were given, then copies; the model is there on return."""
    def apply(self, delta: int, streams: Sequence[int]) -> None:
        """Waits until `streams` have done what they were given, then adds; `delta` may be overwritten on return."""
    @property
    def shown(self) -> int:
        """Memory for one model, for `read`."""
    def show(self, values: Any, streams: Sequence[int]) -> None:
        """Copies a model of the host there, when `streams` have done what they were given."""
    def fetch(self, into: NDArray[Any]) -> None:
        """Copies what is there to the host."""
    def read_kept(self, out: Any) -> None:
        """What averages keep the sum of, as it is held: float32 or float64."""
    def replace_held(self, before: Any, values: Any) -> None:
        """Replaces the model, but for what was applied since `read_kept` gave `before`; no average may be under way."""
    def pause(self, *, timeout: float | None = None) -> None:
        """Begins no average any more and waits for the one that is under way; else StallError, and it resumes."""
    def resume(self) -> None: ...
    def set_told(self, dead: Sequence[int]) -> None:
        """The application knows of these deaths, or, if empty, of one that nobody could name."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    def statistics(self) -> dict[str, Any]: ...
    @property
    def held_dtype_name(self) -> str: ...
    @property
    def closed(self) -> bool: ...

@final
class Neighborhood:
    def __init__(
        self,
        engine: Engine,
        *,
        push_sum: bool,
        count: int,
        dtype_name: str,  # a float type
        overlap: int = 0,  # 1: what is sent in a step counts one step later; with push_sum
        steps: Sequence[
            tuple[float, Sequence[tuple[int, float]], Sequence[tuple[int, float]]]
        ],  # of a period: this rank's own weight, and in- and out-neighbors with theirs, ascending, without itself
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of making that
        name: str,
    ) -> None:
        """Collective; every rank must create the same objects in the same order."""
    def start(self, values: Any) -> None:
        """Begins a step with a copy of `values`; does not wait."""
    def test(self) -> bool:
        """Whether the step that was started has its result."""
    def c_handle(self, *, timeout: float | None = None) -> object:
        """The handle for calls from C, a capsule, which lives as long as this object. `timeout`: their default."""
    def statistics(self) -> dict[str, Any]:
        """steps, waited, memory_bytes."""
    def wait(self, out: Any, *, timeout: float | None = None) -> None:
        """Waits for the step that was started. StallError names the neighbors that have not come."""
    def final(self, out: Any, *, timeout: float | None = None) -> None:
        """The same, with what is on its way to this rank; changes nothing, and works after `leave`."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    @property
    def closed(self) -> bool: ...
    @property
    def steps(self) -> int:
        """Steps started."""
    @property
    def weight(self) -> float:
        """Of a push-sum: of what `wait` or `final` gave last."""

@final
class Hop:
    def __init__(
        self,
        engine: Engine,
        *,
        model: Any,  # a writable buffer, held: the parameters
        dtype_name: str,  # a float type
        count: int,
        max_ig: int,
        backup: Sequence[int],  # of each rank
        staleness: int | None = None,
        acks: bool = False,
        skip: tuple[int, int] | None = None,  # max_jump, trigger
        serial: bool = False,
        checks: bool = False,  # of the gaps of neighbors, in each iteration
        in_neighbors: Sequence[Sequence[int]],  # of each rank, ascending, without itself
        out_neighbors: Sequence[Sequence[int]],
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of making that
        name: str,
    ) -> None:
        """Collective; every rank must create the same objects in the same order."""
    def enter(self, last: int, *, timeout: float | None = None) -> int:
        """Goes on to the next iteration, or by a jump to `last` at most; its number. StallError: who is missing."""
    def step(self, delta: Any, *, timeout: float | None = None) -> None:
        """Ends the iteration. After a StallError to be called again, with the same delta."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    @property
    def closed(self) -> bool: ...
    @property
    def iteration(self) -> int: ...
    @property
    def received(self) -> list[tuple[int, int]]:
        """What was reduced last besides the own update: ranks and iterations."""
    @property
    def queued(self) -> int:
        """Updates in this rank's queue."""
    @property
    def rings(self) -> int:
        """How often ranks of its node have woken this one, or would have if it had slept."""
    def statistics(self) -> dict[str, Any]:
        """iterations, jumps, skipped, received, stale, unsent, waited, memory_bytes."""

@final
class UpdateQueue:
    def __init__(
        self,
        engine: Engine,
        *,
        owner: int,
        senders: Sequence[int],  # ascending
        dtype_name: str,
        count: int,
        max_ig: int,
        nodes: Sequence[int],
        timeout: float | None = None,
        name: str,
    ) -> None:
        """Collective; every rank must create the same objects in the same order."""
    def enqueue(self, update: Any, iteration: int, *, timeout: float | None = None) -> None:
        """Of a sender. Waits for room."""
    def dequeue(
        self, m: int, iteration: int | None, sender: int | None, *, timeout: float | None = None
    ) -> list[tuple[NDArray[np.uint8], int, int]]:
        """Of the owner: bytes, iteration and sender of each."""
    def size(self, iteration: int | None, sender: int | None) -> int:
        """Of the owner."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    @property
    def closed(self) -> bool: ...
    def statistics(self) -> dict[str, Any]:
        """waited, memory_bytes."""
    @property
    def rings(self) -> int: ...

@final
class SharedCounter:
    def __init__(
        self, engine: Engine, *, start: int, nodes: Sequence[int], timeout: float | None = None, name: str
    ) -> None:
        """Collective; every rank must create the same objects in the same order."""
    def fetch_add(self, n: int, *, timeout: float | None = None) -> int:
        """Returns the value before. After a StallError the same call may be repeated."""
    def state(self) -> dict[str, Any]:
        """known: the value as this rank knows it; served: (sequence, answer) by rank, empty on other nodes than rank
        0's; request: (sequence, n, answer or None) of a call that has not returned its answer, or None."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    @property
    def closed(self) -> bool: ...
    def statistics(self) -> dict[str, Any]:
        """waited, memory_bytes."""

@final
class TokenQueue:
    def __init__(
        self,
        engine: Engine,
        *,
        owner: int,
        taker: int,
        tokens: int,  # at first
        nodes: Sequence[int],
        timeout: float | None = None,
        name: str,
    ) -> None:
        """Collective; every rank must create the same objects in the same order."""
    def enqueue(self, tokens: int) -> None:
        """Of the owner."""
    def dequeue(self, tokens: int, *, timeout: float | None = None) -> None:
        """Of the taker: all or nothing."""
    def size(self) -> int:
        """Of either."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None:
        """Raises what the next call would, if it cannot be used any more."""
    @property
    def closed(self) -> bool: ...
    def statistics(self) -> dict[str, Any]:
        """waited, memory_bytes."""
    @property
    def rings(self) -> int: ...

@final
class Round:
    """The request of one contribution."""

    @property
    def done(self) -> bool:
        """As `test`."""
    def test(self) -> bool:
        """Whether the round is done; if so, `result` is up to date. Moves messages, waits for nothing."""
    def wait(self, *, timeout: float | None = None) -> RoundInfo:
        """Waits until the round is done. StallError after `timeout` seconds (None: `default_timeout`) names who has not
        arrived."""
    @property
    def default_timeout(self) -> float | None:
        """Seconds that `wait` takes at most if it is given no limit; None: there is none."""
    @property
    def late(self) -> bool:
        """Whether rounds had completed that this rank had not been given: the call waits for nothing then."""
    def completed_info(self) -> RoundInfo | None:
        """The RoundInfo, if the round completed before the death that ended its collective."""

@final
class RoundInfo:
    """What a call is told of the round that it was given."""

    @property
    def round(self) -> int:
        """The number of the round, from 0."""
    @property
    def initiator(self) -> int:
        """The lowest rank that started the round."""
    @property
    def included(self) -> bool:
        """Whether the data of this call is in the result."""
    @property
    def contributors(self) -> tuple[int, ...]:
        """The ranks whose data is in the result, ascending; the same on every rank."""
    @property
    def active(self) -> int:
        """How many of them have fresh data: their newest came by a call that arrived in this very round."""
    @property
    def staleness(self) -> int:
        """Rounds completed between the handing over of this rank's data and the round that took it."""
    @property
    def missed(self) -> int:
        """Rounds completed since this rank last looked, this one apart."""
    @property
    def overrun(self) -> bool:
        """Whether more were missed than `history`. Under missed="sum" they are in the result all the same."""
    @property
    def epoch(self) -> int:
        """Changes of the communicator's members before the round."""
    @property
    def lost(self) -> tuple[int, ...]:
        """The ranks that died since this rank's last call, ascending."""
    def __reduce__(self) -> tuple[object, tuple[object, ...]]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def restored_round_info(
    number: int,
    initiator: int,
    included: bool,
    contributors: Sequence[int],
    active: int,
    staleness: int,
    missed: int,
    overrun: bool,
    epoch: int,
    lost: Sequence[int],
    /,
) -> RoundInfo:
    """What `RoundInfo.__reduce__` names: a copy."""

@final
class Grant:
    """A group that may be performed now."""

    @property
    def sequence(self) -> int:
        """The number of the group, in the order of generation, from 0."""
    @property
    def members(self) -> tuple[int, ...]:
        """Ascending."""
    @property
    def initiator(self) -> int:
        """Whose request made the group."""
    @property
    def conflicts(self) -> int:
        """Earlier groups that it had to wait for when it was generated."""
    def answers(self, member: int) -> bool:
        """Whether it answers a request of this member: its last one or, if it has not asked yet, its next."""

@final
class GroupGenerator:
    """The group generator of Ripples (sections 4.1 and 5): a state machine without I/O, threads or clock.

    Methods return the groups that start by the call. Misuse raises ValueError and changes nothing. `now`: seconds,
    given always or never; without, time is counted in requests.
    """

    def __init__(
        self,
        node_of: Sequence[int],  # of each worker, numbered from 0 in the order of their lowest ranks
        *,
        size: int = 3,
        seed: int = 0,
        group_buffer: bool = True,
        global_division: bool = False,
        inter_intra: bool = False,
        slowdown_threshold: int = 0,  # 0: off
        punctual: bool = False,
        tolerance: float = 0.1,
        patience: float = 1.0,
        connectivity: int = 0,  # 0: off
    ) -> None: ...
    def request(self, worker: int, now: float | None = None) -> list[Grant]:
        """A worker wants to synchronise."""
    def propose(self, worker: int, group: Sequence[int], now: float | None = None) -> list[Grant]:
        """The same with a given group; not if the worker is in a group already that is to answer it."""
    def acknowledge(self, worker: int, sequence: int, now: float | None = None) -> list[Grant]:
        """A member has performed a group."""
    def leave(self, worker: int) -> None:
        """A worker ends: it is in no new group, and must acknowledge those that it is in already."""
    @property
    def finished(self) -> bool:
        """All workers have left, and no group is running or pending."""
    @property
    def size(self) -> int:
        """Number of workers."""
    @property
    def generated(self) -> int:
        """Groups generated so far."""
    @property
    def alive(self) -> int:
        """Groups that are running or pending."""
    @property
    def locks(self) -> tuple[bool, ...]:
        """The lock vector: which workers perform a group."""
    def is_asking(self, worker: int) -> bool:
        """Whether a request of the worker is not answered yet."""
    def groups_of(self, worker: int) -> list[int]:
        """The Group Buffer: the groups with the worker that it has not acknowledged, in order."""
    def describe(self, first: int | None = None) -> str:
        """The groups that are running or pending, a line each, with what they wait for; those of `first` first."""
    def run_closed_loop(self, requests: int, seed: int = 0) -> int:
        """For measurements: workers ask again at once, in a random order; returns how many groups were performed."""

@final
class Slice:
    @property
    def buffer(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    def part(self, offset: int, count: int) -> Slice:
        """ScheduleError past its end."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ScheduleBuilder:
    """Straight-line construction of one rank's plan. Ops are returned as integer ids."""

    def __init__(self, rank: int, size: int) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def buffer(self, count: int, name: str = "") -> Slice: ...
    def send(self, source: Slice, to: int) -> int: ...
    def recv(self, into: Slice, source: int) -> int: ...
    def reduce(self, source: Slice, into: Slice) -> int: ...
    def copy(self, source: Slice, into: Slice) -> None:
        """Nothing at all if both are the same slice."""
    def trigger(self, name: str) -> int:
        """Fires when the owner of the run says so."""
    def join(self, name: str, predecessors: Sequence[int], need: int | str = "all") -> int:
        """need: "all", "one", or a number k."""
    def signal(self, name: str, predecessors: Sequence[int]) -> int:
        """Tells the owner of the run that all predecessors have completed."""
    def gate(self, op: int) -> None:
        """Every send, recv, reduce and copy added from here on also waits for `op`."""
    def ungate(self) -> None: ...
    def build(self) -> Schedule:
        """ScheduleError naming the op if the plan cannot be right. The builder is spent then."""

@final
class Schedule:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def ops(self) -> list[dict[str, Any]]:
        """[{"id", "kind", "name", "need", "predecessors" (number), "next" (ids), "slices"}, and "peer" of messages]"""
    @property
    def edges(self) -> int: ...
    def text(self) -> str: ...
    def dot(self) -> str: ...

def plan_allreduce(algorithm: str, rank: int, size: int, count: int) -> Schedule:
    """in = buffer 0, out = buffer 1."""

def plan_partial_allreduce(algorithm: str, rank: int, size: int, count: int, activation: str = "tree") -> Schedule:
    """Activation, hold and allreduce in place on buffer 0, as the engine runs it."""

def plan_staged_allreduce(
    algorithm: str, rank: int, size: int, count: int, piece: int, activation: str = "tree"
) -> Schedule:
    """The same where buffer 0 is on a device: copied to the host, reduced there, and copied back, in pieces of at least
    `piece` elements."""

def register_algorithm(name: str, build: Callable[[ScheduleBuilder, Slice, Slice], None]) -> None:
    """Adds an allreduce written in Python: build(s, in, out). For experiments and tests."""

def simulate(
    *,
    size: int,
    work: NDArray[np.float64],  # (size, calls): seconds of work before each call
    calls: NDArray[np.int64],  # (size,): calls that each rank makes
    ending: Sequence[str] | str = "flush",  # per rank or for all: "flush" (flush, then close) | "close" | "none"
    policy: str = "solo",
    policy_size: int = 0,
    seed: int = 0,  # of the policy
    grace: float = 0.0,  # -1: auto
    late: str = "accumulate",
    missed: str = "latest",
    max_staleness: int | None = None,
    activation: str = "tree",
    algorithm: str = "recursive_doubling",
    history: int = 8,
    op: str = "SUM",
    count: int = 0,  # elements of int64; 0: one per rank, and call j of rank r contributes 2**j at element r
    pipeline: int = 0,  # calls made before the oldest handle is waited for
    barrier: bool = False,  # all ranks start each call's work together
    latency: float = 0.0,  # LogGP: L
    overhead: float = 0.0,  # o
    gap_per_byte: float = 0.0,  # G
    reduce_per_byte: float = 0.0,  # gamma
    jitter: float = 0.0,  # every message takes up to this many seconds more, drawn by delivery_seed
    delivery_seed: int = 0,
    payload_bytes: int | None = None,  # what costs are computed from, instead of the simulated elements
    record: bool = True,  # keep results and contributor sets of every call (tests); False for large sizes
    max_events: int = 0,
) -> dict[str, Any]:
    """All ranks in virtual time with the engine's own protocol code. Returns columns, one row per returned call:
    rank, call (-1: flush), called, done (seconds), late, round, initiator, included, active, contributors (number),
    staleness, missed, overrun; with record also `result` (rows, count) and `members` (rows, size) bool;
    and scalars: rounds, virtual_seconds, messages, bytes, deadlock (text or None)."""

def simulate_hop(**script: Any) -> dict[str, Any]:
    """Hop of scripted ranks in virtual time: see csrc/simulation/hop_simulation.h."""

@final
class UpdateCalls:
    """The calls of a server's function, which need a thread."""

    def serve(self) -> None:
        """Makes them until every rank has closed the server; raises what the function raises."""
    def end(self) -> None:
        """`serve` returns after the call under way."""

class ParameterServer:
    def __init__(
        self,
        engine: Engine,
        *,
        weights: Any,  # a buffer: the first ones
        dtype_name: str,  # a float type
        count: int,
        workers: Sequence[int],  # ascending
        servers: Sequence[int],  # ascending
        direct: bool,  # whoever pushes updates the weights; one node, one server
        sync: Mapping[str, Any],
        update: Mapping[str, Any],
        call: Callable[..., None] | None = None,  # in place of a rule
        nan: str,  # reject, skip, accept
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of making that
        name: str,
        recoverable: bool = False,  # survivors complete the update of a server that dies
        resumed: Mapping[str, Any] | None = None,  # version, given, clocks, parts; `weights` are then wide arrays
    ) -> None:
        """Collective; every rank must create the same objects in the same order."""
    def push(self, gradient: Any, *, timeout: float | None = None) -> int:
        """Waits until the push before is let go; the clock. StallError: nothing is pushed."""
    def give_up(self, *, timeout: float | None = None) -> int:
        """A push of nothing."""
    def test(self, clock: int) -> bool:
        """Whether the worker has been let go after that push."""
    def wait(self, clock: int, *, timeout: float | None = None) -> None: ...
    def pull(self, out: Any, *, timeout: float | None = None, at_least: int = 0) -> None: ...
    def push_pull(self, gradient: Any, out: Any, *, timeout: float | None = None) -> None: ...
    def c_handle(self, *, timeout: float | None = None) -> object:
        """The handle for calls from C, a capsule, which lives as long as this object. `timeout`: their default."""
    def suspend(self, *, timeout: float | None = None) -> None:
        """Takes no part until the next push."""
    def leave(self) -> None:
        """Takes no further part; returns at once. Idempotent."""
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]:
        """waited, memory_bytes."""
    @property
    def closed(self) -> bool: ...
    @property
    def clock(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def arrays(self) -> int:
        """Of a shard: the weights, and the states of the update rule."""
    @property
    def bounds(self) -> list[int]:
        """Of the shards, in elements."""
    def settle(self, dead: Sequence[int], *, timeout: float | None = None) -> bool:
        """After all engines have stopped: completes work in shared memory. False if it takes too long."""
    def included(self) -> list[dict[str, Any] | None]:
        """version, used (by worker), is_broken of each shard; None if on another node."""
    def arrays_of(self, shard: int) -> bytearray:
        """The wide weights and states of a shard of this node."""
    @property
    def update_calls(self) -> UpdateCalls | None:
        """Of a server whose function is to be called by a thread of its own."""
    @property
    def outcome(self) -> tuple[int, int, int, bool]:
        """Of the newest push that was let go: clock, version, staleness, used."""
    def server_statistics(self, *, timeout: float | None = None) -> dict[str, Any]:
        """workers (rank, pushes, discarded, given up, waiting, presence), staleness, supersteps, version, superstep."""

def simulate_server(**script: Any) -> dict[str, Any]:
    """A parameter server and scripted workers in virtual time: see csrc/simulation/parameter_server_simulation.h."""
