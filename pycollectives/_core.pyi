"""The extension module: engine, partial allreduce, schedules, simulator. Private; the package's own modules wrap it.

It raises the exceptions of `support.errors`, and ValueError, TypeError and RuntimeError. Methods that several classes
have are documented in the first.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, final

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

__version__: str
interface: str  # SHA-256 of this file when the extension was built

def mpi_library_version() -> str:
    """Return the result of MPI_Get_library_version in this module, which must equal mpi4py's."""

def cuda_availability() -> dict[str, Any]:
    """Return whether CUDA devices can be used, as a dict: "reason" (why not; "" if they can), "has_failed" (whether a
    device error is the reason), "driver_version" (0 without a driver), "kernels" (their compiler and target), and
    "devices". Each device has "name", "capability", "bytes", "pci_bus_id", "why_not_shared" (why processes cannot share
    its memory; "" if they can), "one_process_at_a_time", and "reaches" (whether it can access each device's memory)."""

def device_of(data: int) -> int | None:
    """Return the number of the CUDA device whose memory contains this address; None for any other address."""

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
    """Return the seconds in the LogGP model of each algorithm that "auto" can choose, and of variants NAME:K."""

def costs_of_activation(
    size: int, *, latency: float, overhead: float, gap_per_byte: float, header_bytes: float
) -> dict[str, float]:
    """Return the cost in seconds of each way to start a round: the time from one rank's start until all ranks have
    learned of it, plus the time of the busiest rank's messages if all ranks start."""

def parts_of_allreduce(algorithm: str, size: int) -> int:
    """Return the smallest count at which a plan has all its messages; a larger count only makes messages longer."""

def measure_messages(engine: Engine, *, other: int, timeout: float | None = None) -> tuple[float, float, float]:
    """Measure messages between rank 0 and `other`; collective. Return LogGP's L and o in seconds and its G in seconds
    per byte, the same on all ranks."""

def time_of_plans(
    algorithm: str,
    size: int,
    *,
    count: int,
    element_bytes: float,
    activation: str = "",  # empty: the allreduce only
    latency: float,
    overhead: float,
    gap_per_byte: float,
    reduce_per_byte: float,
    one_for_all: bool = False,  # for a plan in which all ranks do the same at the same time
) -> float:
    """Return the virtual seconds until the last rank has its result, as `simulate` does with policy "full" if all ranks
    contribute at the same time."""

def algorithms() -> list[dict[str, Any]]:
    """Return the registered allreduce algorithms, ordered by name. Each is a dict of strings: "name", "steps", "bytes"
    and "reference"."""

def own_process() -> tuple[int, int]:
    """Return the id and the start time of this process, which together are unique."""

def close_all() -> None:
    """Serve the other ranks until all ranks have closed every MPI engine. After `exit_timeout`, end the job."""

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
        """Return an engine on a duplicate of `comm`; collective.

        `local_ranks`: the number of ranks on this machine. `neighbours`: (rank, process id, start time) of the other
        ranks whose processes this one can see. `progress`: "thread" or "caller". `exit_timeout`: limit of `close_all`.
        """
    @staticmethod
    def loopback(size: int, *, progress: str = "thread", delay: float = 0.0, seed: int = 0) -> list[Engine]:
        """Return `size` engines in this process, connected by mailboxes; messages take up to `delay` seconds."""
    @property
    def rank(self) -> int: ...
    @property
    def in_own_process(self) -> bool:
        """False in a fork of the process that made the object."""
    @property
    def size(self) -> int: ...
    @property
    def transport(self) -> str: ...
    @property
    def progress(self) -> str: ...
    def compare(self, local: bytes, *, what: str, timeout: float | None = None) -> list[bytes] | None:
        """Compare all ranks' byte strings, of at most 4096 B, in O(log P) messages; collective. Return None if they are
        equal, otherwise every rank's string. A StallError names the ranks that did not call `compare`."""
    def check_next_id(self) -> None:
        """Raise RuntimeError if so many collectives were created that the next one would have the tags of an open
        one."""
    def advance(self) -> bool:
        """Move messages once, in the calling thread; return whether any message moved."""
    def start_heartbeat(self, *, machines: Sequence[int], limit: float) -> None:
        """Treat the ranks of a machine as dead once it sends nothing for `limit` seconds. Call this on all ranks.

        `machines`: the number of each rank's machine.
        """
    def check_usable(self) -> None:
        """If the engine has failed, raise the error that every further call raises."""
    def check_process(self) -> None:
        """Raise ClosedError in a fork of the process that made the engine."""
    def leave(self) -> None:
        """Notify the other ranks that this rank takes part in no further comparison, so that no rank waits for it."""
    def close(self, *, timeout: float | None = None) -> None:
        """Wait until every rank has closed every collective, and free the communicators; collective. A StallError names
        the ranks with open collectives. Idempotent."""
    def mpi_duplicate(self) -> MPI.Intracomm | None:
        """Return the communicator that carries the engine's messages, whose tags are below MPI.TAG_UB; None if ranks
        are threads, or after `close`."""
    def acknowledge_failed(self) -> list[int] | None:
        """Return the ranks that MPI reports as dead, so that others' messages arrive; None if MPI cannot do so."""
    @property
    def all_closed(self) -> bool:
        """Whether all ranks have closed the engine, so that other processes may have ended."""
    def stop(self, failed: Sequence[int]) -> None:
        """End all progress because the ranks `failed` have died; every further call raises RankFailedError."""
    def stop_all(self) -> None:
        """Stop every rank as `stop` does, although no rank has died; the RankFailedError names no rank."""
    def supersede(self) -> None:
        """Do not report this engine's failure at the end of the program, because the surviving ranks have a new
        engine."""
    def announce(self, text: str) -> None:
        """Make the other ranks print `text`, an error of this rank. Only the first call has an effect; none waits."""
    def abort(self) -> None:
        """Close every collective without waiting; the engine serves the other ranks until the process ends."""
    def flight_record(self) -> str:
        """Return this rank's record of the newest rounds and of its waits, as JSON."""

@final
class PartialAllreduce:
    def __init__(
        self,
        engine: Engine,
        *,
        nodes: Sequence[int] | None = None,  # of each rank; None: every rank is a node of its own
        segment_bytes: int = ...,  # of reductions within a node
        timeout: float | None = None,  # of the creation
        default_timeout: float | None = None,  # of calls without `timeout`; None: no limit
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        dtype_name: str,
        convert: Callable[[Any], Any],  # for contributions that are not plain arrays of shape and dtype
        writable: Callable[[Any], NDArray[Any]],  # for the memory of results: returns an array of `shape` over it
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
        """Collective: all ranks create the same objects in the same order. If a rank cannot allocate its memory, the
        call fails on all ranks."""
    def contribute(self, x: Any, *, stream: None = None) -> Round:
        """Contribute `x`, any C-contiguous buffer of the right number of bytes (checked), without waiting. The GIL is
        held if the call takes only microseconds: in shared memory, if the data of all ranks is small."""
    def contribute_and_wait(self, x: Any, *, timeout: float | None = None) -> RoundInfo:
        """Return `contribute(x).wait(timeout=...)`; an invalid `timeout` is refused before any data is sent."""
    def allreduce(
        self, x: Any, out: Any | None = None, *, timeout: float | None = None
    ) -> tuple[NDArray[Any], RoundInfo]:
        """Do the same as `contribute_and_wait`, and also return the result: `out` if given, otherwise `result`."""
    @property
    def result(self) -> NDArray[Any]:
        """The newest result, a read-only array of the given shape and dtype; RuntimeError if there is none yet."""
    def start_flush(self) -> None:
        """Begin a flush, which `flush` must complete: from now on, no round waits for this rank."""
    def flush(self, *, timeout: float | None = None) -> RoundInfo:
        """Deliver the pending data of all ranks; collective. After a StallError, call it again to continue."""
    def c_handle(self, *, timeout: float | None = None) -> object:
        """Return a capsule for calls from C, valid as long as this object exists. `timeout`: the default of calls."""
    def leave(self) -> None:
        """Leave the collective without waiting. Idempotent."""
    def check_usable(self) -> None:
        """If the object is unusable, raise the error that its next call would raise."""
    def abort(self) -> int:
        """Discard pending contributions and leave the collective; return their number."""
    def recovery_state(self) -> dict[str, Any]:
        """Return this rank's state of the rounds, for use after a death. Call it once all survivors have stopped."""
    def continue_from(self, lacking: int, missed: int, values: bytes | None, divisor: int) -> None:
        """Continue a former collective; call it before the first round. `lacking`: the newest consecutive rounds
        without this rank's data. `missed`: rounds that it has not received. `values`: the sum of the missed rounds."""
    def deposit(self, x: Any) -> None:
        """Before the first round, contribute data without starting or joining a round."""
    def receive_pending(self) -> None:
        """Set `result` to the sum passed to `continue_from`, if no call has received this sum."""
    def set_result(self, values: bytes | None, divisor: int) -> None:
        """Set `result` to values that `recovery_state` returned or, if `values` is None, to the identity of `op`."""
    def set_fallback(
        self, fallback: Callable[[Any, Any, float | None, Any, list[int] | None], tuple[Any, RoundInfo]]
    ) -> None:
        """Make `allreduce` call `fallback(x, out, timeout, stream, dead)`, except between `begin_direct` and
        `end_direct`. If deaths interrupt a direct call, `dead` names the ranks, and `timeout` is the remaining time."""
    def begin_direct(self) -> None:
        """Let `allreduce` run without `fallback`; the engine keeps contributions that are in no round yet."""
    def end_direct(self, *, waits: bool) -> list[tuple[int, NDArray[Any], bool, bool, Round | None]]:
        """Undo `begin_direct`, and return the kept contributions: number, values, whether the call was interrupted,
        whether a death interrupted it, and its request, if known. If another thread's call is in progress, wait for its
        end if `waits`; otherwise raise RuntimeError."""
    @property
    def direct_user(self) -> int:
        """The `threading.get_ident` of the thread that made the newest call without `fallback`."""
    @property
    def contributions(self) -> int:
        """The number of contributions so far. They are numbered from 1."""
    @property
    def ended(self) -> bool:
        """Whether all ranks have left, and no data is pending."""
    @property
    def delivered(self) -> int:
        """The number of the newest contribution that a completed round contains; 0 if none, or currently unknown."""
    @property
    def in_own_process(self) -> bool:
        """False in a fork of the process that made the object."""
    def statistics(self) -> dict[str, Any]:
        """Return counters: rounds, contributions, included, late, missed, overrun, waited, memory_bytes, and stragglers
        (rank, rounds without its data, longest run of such rounds)."""
    @property
    def closed(self) -> bool: ...
    @property
    def has_contributed(self) -> bool:
        """Whether this thread has contributed since the last flush."""
    @property
    def rounds(self) -> int:
        """The number of rounds completed on this rank."""
    @property
    def name(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def schedule(self) -> Schedule | None:
        """This rank's plan of messages between nodes; None if it has no plan."""

@final
class DevicePartialAllreduce:
    """`PartialAllreduce` for arrays on a CUDA device, passed as addresses. Streams are handles, as for DLPack."""

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
        piece_bytes: int = 1048576,  # copied to the host and back at a time, between nodes
        history: int = 8,
        name: str = "",
    ) -> None:
        """Allocate all memory; collective. If one rank fails, the call fails on all ranks."""
    def device_of(self, data: int) -> int | None:
        """Return the same as the function `device_of`. If the device fails, so does the collective."""
    def contribute(self, data: int, streams: Sequence[int]) -> Round:
        """Contribute the values after earlier work on `streams`; later work may overwrite them. Raise ValueError for a
        stream that belongs to another device, is destroyed, or is being captured."""
    def give(self, out: int, stream: int) -> None:
        """Copy the newest result to `out`, in stream order on `stream`."""
    def fetch(self, into: NDArray[Any]) -> None:
        """Copy the newest result to the host."""
    @property
    def shown(self) -> int:
        """The address of device memory for one result: an `out` for `give`."""
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
    """Reductions in groups of ranks that the caller names. Each rank makes one object per engine, at first use."""

    def __init__(self, engine: Engine, *, nodes: Sequence[int]) -> None:
        """`nodes`: the node of each rank; ranks of one node may share memory."""
    def reduce(
        self,
        values: Any,  # PEP 3118, C-contiguous and writable; no other check
        *,
        dtype_name: str,
        members: Sequence[int],  # ascending, with this rank
        op: str,
        algorithm: str,  # the same on all members; "board": in shared memory
        caller: str,  # of kCallers: the same on all members
        timeout: float | None = None,
    ) -> None:
        """Reduce in place; collective among `members`. After `timeout` seconds, a StallError names the missing
        members."""
    def reduce_on_device(
        self,
        device: int | None,  # None: the device of the memory
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
        """Do the same as `reduce` with an array on a CUDA device, after earlier work on `streams`."""
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
        """Return a capsule for calls from C with arrays of `count` elements, valid as long as this object exists."""
    def refuse(self, members: Sequence[int], reason: str) -> None:
        """Refuse the next call of `reduce` with these members. The other members raise MismatchError with `reason`."""
    def leave(self) -> None:
        """End calls in progress and refuse further ones, without waiting."""
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
        generator: GroupGenerator | None = None,  # only its options are used; None: `average` gets the groups
        coordinator_rank: int = 0,
        algorithms: Sequence[str],  # by the number of members, from 0 to the number of ranks
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of the creation
        name: str,
    ) -> None:
        """Collective if ranks share memory. All ranks create the same objects in the same order."""
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
        """Raise an error if the groups' plans are invalid. Call it before ranks agree to make the object."""
    def average(
        self, values: Any, *, step: int, group: Sequence[int] = (), timeout: float | None = None
    ) -> tuple[tuple[int, ...], int, float, int]:
        """Average in place with the next group; return (group, sequence, waited in seconds, conflicts)."""
    def leave(self, values: Any | None = None) -> None:
        """Leave the collective. Pending groups average with a copy of `values`, if given. Idempotent."""
    def c_handle(self, *, timeout: float | None = None) -> object: ...
    @property
    def next_step(self) -> int:
        """The number of the step after the last call of `average`, counting calls from C."""
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]:
        """Return counters: averages, cache_hits, cache_misses, waited, memory_bytes."""
    @property
    def closed(self) -> bool: ...

@final
class DevicePartialReduce:
    """`PartialReduce` for arrays on a CUDA device, passed as addresses. Streams are handles, as for DLPack."""

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
        piece_bytes: int = 1048576,  # copied to the host and back at a time, between nodes
        nodes: Sequence[int],
        timeout: float | None = None,
        name: str,
    ) -> None:
        """Allocate all device memory; collective. If one rank fails, the call fails on all ranks."""
    def device_of(self, data: int) -> int | None:
        """Return the same as the function `device_of`. If the device fails, so does the collective."""
    def average(
        self,
        data: int,
        *,
        owner: object,  # keeps the memory alive
        streams: Sequence[int],
        step: int,
        group: Sequence[int] = (),
        timeout: float | None = None,
    ) -> tuple[tuple[int, ...], int, float, int]:
        """Wait for earlier work on `streams`, then do the same as `PartialReduce.average`."""
    def leave(self, data: int | None = None, streams: Sequence[int] = ()) -> None:
        """Leave, as `PartialReduce.leave` does."""
    @property
    def failed(self) -> bool:
        """Whether any rank's device has failed, so that all ranks have left or will leave soon."""
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]: ...
    @property
    def closed(self) -> bool: ...

class PairwiseAveraging:
    def __init__(
        self,
        engine: Engine,
        *,
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of the creation
        initial: Any,  # PEP 3118, C-contiguous; only lengths of buffers are checked
        name: str,
        count: int,
        dtype_name: str,  # of floats
        segment_bytes: int,  # in the held type; 0: the model is one segment
        neighbors: Sequence[int],
        initiates: bool,  # requests averages of neighbors on other nodes
        random: bool,  # whether the next neighbor is drawn at random
        seed: int,
        per_step: bool,
        period: float,  # seconds between the beginnings of averages; 0: depends on their duration
        acceleration: tuple[float, float] | None,  # the kept fraction of x - x~, and alpha~
        by_frequency: bool,
    ) -> None:
        """Collective: all ranks create the same objects in the same order."""
    @staticmethod
    def check(engine: Engine, **options: Any) -> None:
        """Raise ValueError if messages would need too many tags. `options`: the constructor's, from `name` on."""
    def read(self, out: Any) -> None: ...
    def read_kept(self, out: Any) -> None:
        """Copy to `out`, in the type `held_dtype_name`, the values whose sum over ranks does not change in averages."""
    def apply(self, delta: Any) -> None: ...
    def c_handle(self, *, timeout: float | None = None) -> object: ...
    def replace_held(self, before: Any, values: Any) -> None:
        """Replace the model by `values`, plus its changes since `read_kept` returned `before`. Call `pause` first."""
    def pause(self, *, timeout: float | None = None) -> None:
        """Stop averaging, and wait for the current average to end. After a StallError, averaging continues."""
    def resume(self) -> None: ...
    def set_told(self, dead: Sequence[int]) -> None:
        """Note that the application knows that the ranks `dead` or, if `dead` is empty, an unknown rank has died."""
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]: ...
    @property
    def held_dtype_name(self) -> str: ...
    @property
    def closed(self) -> bool: ...

@final
class DevicePairwiseAveraging:
    """`PairwiseAveraging` for models on CUDA devices. Arrays are addresses, and streams are handles, as for DLPack."""

    def __init__(
        self,
        engine: Engine,
        *,
        device: int,  # of this rank
        nodes: Sequence[int],
        timeout: float | None = None,
        initial: int,
        streams: Sequence[int],  # `initial` is complete after their earlier work
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
        """Allocate all memory; collective. If one rank fails, the call fails on all ranks."""
    def device_of(self, data: int) -> int | None:
        """Return the same as the function `device_of`. If the device fails, this rank's part ends."""
    def read(self, out: int, streams: Sequence[int]) -> None:
        """Wait for earlier work on `streams`, then copy the model to `out`, which is complete on return."""
    def apply(self, delta: int, streams: Sequence[int]) -> None:
        """Wait for earlier work on `streams`, then add `delta` to the model. On return, `delta` may be overwritten."""
    @property
    def shown(self) -> int:
        """The address of device memory for one model: an `out` for `read`."""
    def show(self, values: Any, streams: Sequence[int]) -> None:
        """Copy a model from the host to `shown`, after earlier work on `streams`."""
    def fetch(self, into: NDArray[Any]) -> None:
        """Copy the model at `shown` to the host."""
    def read_kept(self, out: Any) -> None: ...
    def replace_held(self, before: Any, values: Any) -> None: ...
    def pause(self, *, timeout: float | None = None) -> None: ...
    def resume(self) -> None: ...
    def set_told(self, dead: Sequence[int]) -> None: ...
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
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
        overlap: int = 0,  # 1: messages count one step later; only with push_sum
        steps: Sequence[
            tuple[float, Sequence[tuple[int, float]], Sequence[tuple[int, float]]]
        ],  # of a period: own weight, and in- and out-neighbors with their weights, ascending, without this rank
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of the creation
        name: str,
    ) -> None:
        """Collective: all ranks create the same objects in the same order."""
    def start(self, values: Any) -> None:
        """Begin a step with a copy of `values`, without waiting."""
    def test(self) -> bool:
        """Return whether the started step has its result."""
    def c_handle(self, *, timeout: float | None = None) -> object: ...
    def statistics(self) -> dict[str, Any]:
        """Return counters: steps, waited, memory_bytes."""
    def wait(self, out: Any, *, timeout: float | None = None) -> None:
        """Wait for the started step. A StallError names the missing neighbors."""
    def final(self, out: Any, *, timeout: float | None = None) -> None:
        """Do the same as `wait`, plus the messages in transit to this rank. Changes no state; works after `leave`."""
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def steps(self) -> int:
        """The number of steps started."""
    @property
    def weight(self) -> float:
        """The weight of the last result of `wait` or `final`, for push-sum."""

@final
class Hop:
    def __init__(
        self,
        engine: Engine,
        *,
        model: Any,  # a writable buffer with the parameters, which the object keeps
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
        timeout: float | None = None,  # of the creation
        name: str,
    ) -> None:
        """Collective: all ranks create the same objects in the same order."""
    def enter(self, last: int, *, timeout: float | None = None) -> int:
        """Enter the next iteration, or a later one up to `last` by a jump, and return its number. A StallError names
        the missing ranks."""
    def step(self, delta: Any, *, timeout: float | None = None) -> None:
        """Add `delta` and end the iteration. After a StallError, call `step` again with the same `delta`."""
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def iteration(self) -> int: ...
    @property
    def received(self) -> list[tuple[int, int]]:
        """The neighbors' updates in the last average: ranks and iterations."""
    @property
    def queued(self) -> int:
        """The number of updates in this rank's queue."""
    @property
    def rings(self) -> int:
        """The number of notifications received from ranks of this node."""
    def statistics(self) -> dict[str, Any]:
        """Return counters: iterations, jumps, skipped, received, stale, unsent, waited, memory_bytes."""

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
        """Collective: all ranks create the same objects in the same order."""
    def enqueue(self, update: Any, iteration: int, *, timeout: float | None = None) -> None:
        """Wait for a free slot, and enqueue an update; only for senders."""
    def dequeue(
        self, m: int, iteration: int | None, sender: int | None, *, timeout: float | None = None
    ) -> list[tuple[NDArray[np.uint8], int, int]]:
        """Wait for `m` updates; return bytes, iteration and sender of each. Only for the owner."""
    def size(self, iteration: int | None, sender: int | None) -> int:
        """Return the number of queued updates; only for the owner."""
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def statistics(self) -> dict[str, Any]:
        """Return counters: waited, memory_bytes."""
    @property
    def rings(self) -> int: ...

@final
class SharedCounter:
    def __init__(
        self, engine: Engine, *, start: int, nodes: Sequence[int], timeout: float | None = None, name: str
    ) -> None:
        """Collective: all ranks create the same objects in the same order."""
    def fetch_add(self, n: int, *, timeout: float | None = None) -> int:
        """Add `n` and return the previous value. After a StallError, the same call may be repeated."""
    def state(self) -> dict[str, Any]:
        """Return a dict: "known" is the value that this rank knows; "served" is (sequence, answer) by rank, empty
        except on rank 0's node; "request" is (sequence, n, answer or None) of a call that has not returned, or None."""
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def statistics(self) -> dict[str, Any]: ...

@final
class TokenQueue:
    def __init__(
        self,
        engine: Engine,
        *,
        owner: int,
        taker: int,
        tokens: int,  # initially
        nodes: Sequence[int],
        timeout: float | None = None,
        name: str,
    ) -> None:
        """Collective: all ranks create the same objects in the same order."""
    def enqueue(self, tokens: int) -> None:
        """Enqueue tokens; only for the owner."""
    def dequeue(self, tokens: int, *, timeout: float | None = None) -> None:
        """Wait until the queue has this many tokens, and dequeue them; only for the taker."""
    def size(self) -> int:
        """Return the number of queued tokens; only for the owner and the taker."""
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def statistics(self) -> dict[str, Any]: ...
    @property
    def rings(self) -> int: ...

@final
class Round:
    """The request that a contribution returns, similar to an MPI request."""

    @property
    def done(self) -> bool:
        """Whether the round is done; the same as `test()`."""
    def test(self) -> bool:
        """Return True if the round is done; `result` is then up to date. Moves messages, but does not wait."""
    def wait(self, *, timeout: float | None = None) -> RoundInfo:
        """Wait until the round is done. After `timeout` seconds, a StallError names the missing ranks. If `timeout` is
        None, `default_timeout` applies."""
    @property
    def default_timeout(self) -> float | None:
        """The time limit of calls of `wait` without `timeout`, in seconds; None for no limit."""
    @property
    def late(self) -> bool:
        """True if the call came after a round whose result this rank had not received. A late call returns at once."""
    def completed_info(self) -> RoundInfo | None:
        """Return the RoundInfo if the round completed before a death ended its collective; otherwise None."""

@final
class RoundInfo:
    """Describes the round with which a call completed."""

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
        """The number of contributors with fresh data: data of a call that arrived in this round."""
    @property
    def staleness(self) -> int:
        """The number of rounds that completed between this rank's contribution and the round that contains it."""
    @property
    def missed(self) -> int:
        """The number of rounds that completed since this rank's last result, not counting this one."""
    @property
    def overrun(self) -> bool:
        """Whether more rounds than `history` were missed. Under missed="sum", the result still includes them."""
    @property
    def epoch(self) -> int:
        """How many times the communicator's members had changed before the round."""
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
    """Return a copy of a RoundInfo, for `RoundInfo.__reduce__`."""

@final
class Grant:
    """A group whose members may average now."""

    @property
    def sequence(self) -> int:
        """The number of the group, in the order of generation, from 0."""
    @property
    def members(self) -> tuple[int, ...]:
        """The members of the group, in ascending order."""
    @property
    def initiator(self) -> int:
        """The worker whose request made the group."""
    @property
    def conflicts(self) -> int:
        """The number of earlier groups for which this group had to wait when it was generated."""
    def answers(self, member: int) -> bool:
        """Return whether the group answers the member's last request, or its next request if it has made none."""

@final
class GroupGenerator:
    """The group generator of Ripples (sections 4.1 and 5): a state machine without I/O, threads or clock.

    Methods return the groups that may start because of the call. Misuse raises ValueError and changes no state. `now`
    is the time in seconds; pass it in all calls or in none. Without `now`, time is counted in requests.
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
        """Request a group for a worker."""
    def propose(self, worker: int, group: Sequence[int], now: float | None = None) -> list[Grant]:
        """Do the same as `request` with a given group, unless an existing group answers the request."""
    def acknowledge(self, worker: int, sequence: int, now: float | None = None) -> list[Grant]:
        """Note that a worker has performed a group."""
    def leave(self, worker: int) -> None:
        """Note that a worker leaves: no new group includes it, but it must acknowledge its current groups."""
    @property
    def finished(self) -> bool:
        """Whether all workers have left, and no group is running or pending."""
    @property
    def size(self) -> int:
        """The number of workers."""
    @property
    def generated(self) -> int:
        """The number of groups generated so far."""
    @property
    def alive(self) -> int:
        """The number of groups that are running or pending."""
    @property
    def locks(self) -> tuple[bool, ...]:
        """The lock vector: for each worker, whether it is performing a group."""
    def is_asking(self, worker: int) -> bool:
        """Return whether the worker has a request that no group has answered yet."""
    def groups_of(self, worker: int) -> list[int]:
        """Return the Group Buffer: the worker's groups that it has not acknowledged, in order."""
    def describe(self, first: int | None = None) -> str:
        """Return a line for each running or pending group and the reason why it waits; worker `first` comes first."""
    def run_closed_loop(self, requests: int, seed: int = 0) -> int:
        """For measurements, make requests of workers in random order. Return the number of groups performed."""

@final
class Slice:
    @property
    def buffer(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def count(self) -> int: ...
    def part(self, offset: int, count: int) -> Slice:
        """Return a part of the slice. Raise ScheduleError if the part exceeds the slice."""
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class ScheduleBuilder:
    """Builds one rank's plan op by op. Methods return the ids of ops."""

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
        """Add a copy of `source` to `into`, unless they are the same slice."""
    def trigger(self, name: str) -> int:
        """Add an op that starts when the code that runs the plan fires it."""
    def join(self, name: str, predecessors: Sequence[int], need: int | str = "all") -> int:
        """Add an op that fires once `need` of its predecessors have completed: "all", "one", or a number."""
    def signal(self, name: str, predecessors: Sequence[int]) -> int:
        """Add an op that notifies the code that runs the plan once all predecessors have completed."""
    def gate(self, op: int) -> None:
        """Make every send, recv, reduce and copy added from now on also wait for `op`."""
    def ungate(self) -> None: ...
    def build(self) -> Schedule:
        """Return the plan; if it is invalid, a ScheduleError names the op at fault. Do not use the builder
        afterwards."""

@final
class Schedule:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def ops(self) -> list[dict[str, Any]]:
        """Dicts of "id", "kind", "name", "need", "predecessors" (number), "next" (ids), "slices", "peer" (messages)."""
    @property
    def edges(self) -> int: ...
    def text(self) -> str: ...
    def dot(self) -> str: ...

def plan_allreduce(algorithm: str, rank: int, size: int, count: int) -> Schedule:
    """Return the plan of an allreduce, in which buffer 0 is the input and buffer 1 the output."""

def plan_partial_allreduce(algorithm: str, rank: int, size: int, count: int, activation: str = "tree") -> Schedule:
    """Return the plan that the engine runs: activation, hold, and allreduce in place on buffer 0."""

def plan_staged_allreduce(
    algorithm: str, rank: int, size: int, count: int, piece: int, activation: str = "tree"
) -> Schedule:
    """Do the same as `plan_partial_allreduce` for a buffer 0 on a device, which is copied to the host, reduced there
    and copied back, in pieces of at least `piece` elements."""

def register_algorithm(name: str, build: Callable[[ScheduleBuilder, Slice, Slice], None]) -> None:
    """Register an allreduce written in Python, `build(s, in, out)`, for experiments and tests."""

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
    pipeline: int = 0,  # calls made before waiting for the oldest request
    barrier: bool = False,  # all ranks start each call's work together
    latency: float = 0.0,  # LogGP: L
    overhead: float = 0.0,  # o
    gap_per_byte: float = 0.0,  # G
    reduce_per_byte: float = 0.0,  # gamma
    jitter: float = 0.0,  # every message takes up to this many more seconds, drawn with delivery_seed
    delivery_seed: int = 0,
    payload_bytes: int | None = None,  # for costs, in place of the simulated elements
    record: bool = True,  # keep results and contributor sets of every call (tests); False for large sizes
    max_events: int = 0,
) -> dict[str, Any]:
    """Simulate all ranks in virtual time, with the engine's protocol code. Return columns, a row per returned call:
    rank, call (-1 for a flush), called, done (seconds), late, round, initiator, included, active, contributors
    (number), staleness, missed, overrun; with record also `result` (rows, count) and `members` (rows, size) bool;
    and scalars: rounds, virtual_seconds, messages, bytes, deadlock (text or None)."""

def simulate_hop(**script: Any) -> dict[str, Any]:
    """Simulate Hop with scripted ranks in virtual time: see csrc/simulation/hop_simulation.h."""

@final
class UpdateCalls:
    """The calls of a parameter server's update function, which need a thread of the application."""

    def serve(self) -> None:
        """Make the calls until every rank has closed the server; raise the exception that the function raises."""
    def end(self) -> None:
        """Make `serve` return after the current call."""

class ParameterServer:
    def __init__(
        self,
        engine: Engine,
        *,
        weights: Any,  # a buffer with the initial weights
        dtype_name: str,  # a float type
        count: int,
        workers: Sequence[int],  # ascending
        servers: Sequence[int],  # ascending
        direct: bool,  # the worker that pushes updates the weights; one node, one server
        sync: Mapping[str, Any],
        update: Mapping[str, Any],
        call: Callable[..., None] | None = None,  # instead of a rule
        nan: str,  # reject, skip, accept
        nodes: Sequence[int],  # of each rank; those of one node share memory
        timeout: float | None = None,  # of the creation
        name: str,
        recoverable: bool = False,  # survivors complete the update of a server that dies
        resumed: Mapping[str, Any] | None = None,  # version, given, clocks, parts; `weights` are then wide arrays
    ) -> None:
        """Collective: all ranks create the same objects in the same order."""
    def push(self, gradient: Any, *, timeout: float | None = None) -> int:
        """Push once the previous push is complete; return the clock. A StallError means that nothing was pushed."""
    def give_up(self, *, timeout: float | None = None) -> int:
        """Do the same as `push`, but without a gradient."""
    def test(self, clock: int) -> bool:
        """Return whether the worker may continue after the push that returned `clock`."""
    def wait(self, clock: int, *, timeout: float | None = None) -> None: ...
    def pull(self, out: Any, *, timeout: float | None = None, at_least: int = 0) -> None: ...
    def push_pull(self, gradient: Any, out: Any, *, timeout: float | None = None) -> None: ...
    def c_handle(self, *, timeout: float | None = None) -> object: ...
    def suspend(self, *, timeout: float | None = None) -> None:
        """Let no worker wait for this one until its next push."""
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    def statistics(self) -> dict[str, Any]: ...
    @property
    def closed(self) -> bool: ...
    @property
    def clock(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def arrays(self) -> int:
        """The number of arrays of a shard: the weights and the states of the update rule."""
    @property
    def bounds(self) -> list[int]:
        """The bounds of the shards, in elements."""
    def settle(self, dead: Sequence[int], *, timeout: float | None = None) -> bool:
        """After all engines have stopped, complete updates in shared memory; return False if that takes too long."""
    def included(self) -> list[dict[str, Any] | None]:
        """For each shard, return version, used (by worker) and is_broken; None for a shard on another node."""
    def arrays_of(self, shard: int) -> bytearray:
        """Return the weights (in the wide type) and states of a shard on this node."""
    @property
    def update_calls(self) -> UpdateCalls | None:
        """The calls of the update function; None if this rank has no update function."""
    @property
    def outcome(self) -> tuple[int, int, int, bool]:
        """Clock, version, staleness, and whether the gradient was used, of the newest complete push."""
    def server_statistics(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return counters: workers (rank, pushes, discarded, given up, waiting, presence), staleness, supersteps,
        version, superstep."""

def simulate_server(**script: Any) -> dict[str, Any]:
    """Simulate a parameter server with scripted workers: see csrc/simulation/parameter_server_simulation.h."""
