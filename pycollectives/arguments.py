"""The arguments of collectives, each declared in one place.

A service declares its arguments as a frozen attrs class derived from `Arguments`. The fields are the parameters of the
communicator's method (`collective.creates`), and define how ranks compare the values. Converters and validators check
the values; `creation()` gives them the ranks of the communicator.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import attrs

from .support.buffers import BufferDescription, checked_dtype, describe, name_of
from .support.device_arrays import describe_device, device_number
from .support.validation import checked_choice, checked_integer, checked_name, checked_timeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .support.costs import Costs
    from .support.typing import BufferSpec, DType

COMPARE = "compare"
LOCAL: Mapping[str, Any] = {COMPARE: None}
"""Metadata of a field that may differ between ranks."""

FLOATS = ("float16", "bfloat16", "float32", "float64")
MAX_NUMBER = 2**63 - 1
"""Limit of all counts, including elements and bytes: the engine uses 64 bits."""


def compared_as(statement: Callable[[Any], object]) -> Mapping[str, Any]:
    """Return metadata of a field for which ranks compare `statement(value)`: a string, a number or None."""
    return {COMPARE: statement}


class Group(NamedTuple):
    """The ranks that make a collective. Its arguments may depend on these ranks."""

    rank: int
    size: int
    nodes: Sequence[int]  # of each rank
    costs: Costs | None = None  # of messages between nodes; None if they are unknown


class Creation(NamedTuple):
    """A collective that is being created: its ranks and its default name.

    `original_size`: the number of ranks before some died. Arguments that are valid for this number are lowered to the
    current size.
    """

    group: Group
    default_name: str
    original_size: int | None = None

    @property
    def numbered(self) -> int:
        """The number of ranks, including dead ones."""
        return self.original_size or self.group.size


_creation: ContextVar[Creation] = ContextVar("_creation")


def creation() -> Creation:
    """Return the current creation, for converters and validators of arguments."""
    return _creation.get()


@contextlib.contextmanager
def creating(group: Group, default_name: str, original_size: int | None = None) -> Iterator[None]:
    """Set the current creation for the arguments that are made in the block."""
    token = _creation.set(Creation(group, default_name, original_size))
    try:
        yield
    finally:
        _creation.reset(token)


def as_given(default: object) -> Any:
    """Return `default`, typed as Any because the field's converter changes its type."""
    return default


def one_of(*choices: str) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return a validator that accepts only the strings `choices`."""

    def check(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
        checked_choice(field.name, value, choices)

    return check


def _statement(value: object) -> str | int | None:
    return value if value is None or isinstance(value, (str, int)) else repr(value)


def _name(given: str | None) -> str:
    return creation().default_name if given is None else checked_name(given)


@attrs.frozen
class Arguments:
    """The arguments of a collective, after all checks that do not involve other ranks."""

    service: ClassVar[str]  # the method that makes the collective, such as "hop"; for messages and default names

    name: str = attrs.field(default=None, kw_only=True, converter=_name)
    timeout: float | None = attrs.field(default=None, kw_only=True, converter=checked_timeout, metadata=LOCAL)

    def signature(self) -> dict[str, str | int | None]:
        """Return the values that must be the same on all ranks, by the names of the arguments."""
        signature: dict[str, str | int | None] = {}
        for field in attrs.fields(type(self)):
            state = field.metadata.get(COMPARE, _statement)
            value = getattr(self, field.name)
            if isinstance(value, Template):
                signature.update(value.signature())
            elif state is not None:
                signature[field.name] = state(value)
        return signature

    @property
    def template(self) -> Template | None:
        """Describes contributions and results; None if the collective has no arrays."""
        for field in attrs.fields(type(self)):
            if isinstance(value := getattr(self, field.name), Template):
                return value
        return None


@attrs.frozen(eq=False)
class Template:
    """Describes all arrays of a collective, based on an array passed as an argument."""

    array: Any
    buffer: BufferDescription  # shape and element type
    device: int | None = None  # the number of the CUDA device of this rank's arrays; None: the host
    stream: int | None = None  # on a device, the stream on which the caller uses `array`, if known

    def signature(self) -> dict[str, str | int | None]:
        """Return the values that must be the same on all ranks; the shape may differ."""
        return {
            "count": self.buffer.count,
            "dtype": name_of(self.buffer.dtype),
            "memory": "host" if self.device is None else "CUDA device",
        }

    @classmethod
    def of(cls, array: Any) -> Template:
        """Describe a buffer, `[buffer, count, type]`, or an array on a CUDA device."""
        on_device = describe_device(array)
        if on_device is None:
            return cls(array, describe(array))
        buffer = BufferDescription(on_device.shape, on_device.dtype)
        return cls(array, buffer, device_number(on_device), on_device.stream)

    @classmethod
    def of_count(cls, count: Any, dtype: DType) -> Template:
        """Describe `count` elements of a type in host memory."""
        element = checked_dtype(dtype)
        number = checked_integer("count", count, at_least=0, at_most=MAX_NUMBER // element.itemsize)
        return cls(None, BufferDescription((number,), element))


def template(like: BufferSpec) -> Template:
    """Convert the argument `like`; only its shape and element type are used."""
    return Template.of(like)


def template_on_host(like: BufferSpec) -> Template:
    """Convert the argument `like` of a collective whose arrays are in host memory."""
    return Template(like, describe(like))


def model_like(like: BufferSpec) -> Template:
    """Convert the argument `like` of a collective that averages models in host memory; elements must be floats."""
    if describe_device(like) is not None:
        raise BufferError(
            f"like: expected host memory, got {type(like).__name__} on a device: copy it to the host first, or use "
            "pairwise_averaging, which accepts arrays on CUDA devices if `python -m pycollectives info` lists any"
        )
    return _of_floats("like", Template.of(like))


def initial_model(initial: BufferSpec) -> Template:
    """Convert the argument `initial`: a model, on the host or on a CUDA device."""
    return _of_floats("initial", Template.of(initial))


def initial_model_on_host(initial: BufferSpec) -> Template:
    """Convert the argument `initial`: a model in host memory."""
    return _of_floats("initial", Template(initial, describe(initial)))


def _of_floats(what: str, made: Template) -> Template:
    if made.buffer.dtype.name not in FLOATS:
        raise TypeError(f"{what}: expected elements of {', '.join(FLOATS)}, got {made.buffer.dtype}")
    return made
