"""The loops of the host memory against NumPy, bit for bit.

Any NaN equals any NaN here unless a test is about NaNs: NumPy keeps payloads that depend on the order of operands.
``_testing`` takes and gives bfloat16 elements by their bits, as uint16.
"""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

from pycollectives import _testing as testing
from pycollectives.support import buffers, operations

ACCUMULATORS = {
    "float16": np.float32,
    "bfloat16": np.float32,
    "float32": np.float32,
    "float64": np.float64,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "bool": np.bool_,
}
ELEMENTS = ACCUMULATORS | {"float16": np.float16, "bfloat16": np.uint16}
FLOATS = [name for name in ACCUMULATORS if "float" in name]
INTEGERS = [name for name in ACCUMULATORS if "int" in name]
COMPLEX = ["complex64", "complex128"]
OPS = ["SUM", "PROD", "MIN", "MAX", "AVG", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR"]
PAIRS = [(dtype, op) for dtype in ACCUMULATORS for op in OPS if testing.is_defined(op, dtype)]
LENGTHS = [*range(68), 1023, 1024, 1025, 2051, 1_000_003]  # 16-bit floats go through blocks of 1024
DIVISORS = [1, 2, 3, 7, 128, 1000, 70_001, 2**31 - 1]
CANONICAL_NAN = {np.float32: 0x7FC00000, np.float64: 0x7FF8 << 48}

averaging = pytest.mark.parametrize("op", ["SUM", "AVG"])
every_number = pytest.mark.parametrize("dtype", [name for name in ACCUMULATORS if name != "bool"])
every_pair = pytest.mark.parametrize(("dtype", "op"), PAIRS)


@pytest.fixture(autouse=True)
def ignore_float_errors():
    with np.errstate(all="ignore"):
        yield


def accumulator_of(dtype: str, op: str) -> type:
    """Integers to be averaged are summed in 64 bits."""
    return np.int64 if op == "AVG" and dtype in INTEGERS and dtype != "uint64" else ACCUMULATORS[dtype]


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype.itemsize == expected.dtype.itemsize
    np.testing.assert_array_equal(bits(parts(got)), bits(parts(expected)))


def parts(array: np.ndarray) -> np.ndarray:
    """The floats of complex numbers; other arrays as they are."""
    return array.view(array.real.dtype) if array.dtype.kind == "c" else array


def same_bits_or_nan(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype
    got, expected = parts(got), parts(expected)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        got, expected = (np.where(np.isnan(x), x.dtype.type(0), x) for x in (got, expected))
    same_bits(got, expected)


def draw(rng: np.random.Generator, dtype: type, count: int) -> np.ndarray:
    """Values of every magnitude (random bits), of everyday magnitude, and the extreme ones."""
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return draw(rng, dtype.type(0).real.dtype, 2 * count).view(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(dtype)
    values = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    kind = rng.integers(0, 3, count)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        extremes = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan]
        extremes += [s * x for s in (1, -1) for x in (info.max, info.tiny, info.smallest_subnormal)]
        values = np.where(kind == 1, rng.standard_normal(count), values).astype(dtype)
    else:
        integers = np.iinfo(dtype)
        extremes = [0, 1, integers.max, integers.max - 1, integers.min, integers.min + 1]
    return np.where(kind == 2, rng.choice(np.array(extremes, dtype), count), values).astype(dtype)


UFUNCS = {
    "SUM": np.add,
    "AVG": np.add,
    "PROD": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "LAND": np.logical_and,
    "LOR": np.logical_or,
    "LXOR": np.logical_xor,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def combined_complex(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By the textbook's formula, rounded after each operation: NumPy's own product may fuse two of them."""
    if op != "PROD":
        return (parts(a) + parts(b)).view(a.dtype)
    result = np.empty_like(a)
    result.real = a.real * b.real - a.imag * b.imag
    result.imag = a.real * b.imag + a.imag * b.real
    return result


def combined(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NumPy's result; of two zeros, MIN takes the negative one and MAX the positive one."""
    if a.dtype.kind == "c":
        return combined_complex(op, a, b)
    result = UFUNCS[op](a, b)
    if op in ("MIN", "MAX") and a.dtype.kind == "f":
        negative = np.signbit(a) | np.signbit(b) if op == "MIN" else np.signbit(a) & np.signbit(b)
        result = np.where((a == 0) & (b == 0), np.copysign(a.dtype.type(0), np.where(negative, -1, 1)), result)
    return result.astype(a.dtype)


def quotient(values: np.ndarray, divisor: int) -> np.ndarray:
    """Floats round once; integers divide towards zero."""
    if values.dtype.kind == "f":
        return values / values.dtype.type(divisor)
    if values.dtype.kind == "c":
        return quotient(parts(values), divisor).view(values.dtype)
    if values.dtype.kind == "u":
        return values // values.dtype.type(divisor) if divisor <= np.iinfo(values.dtype).max else np.zeros_like(values)
    wide = values.astype(np.int64)
    return (wide // divisor + ((wide < 0) & (wide % divisor != 0))).astype(values.dtype)


def widened(dtype: str, elements: np.ndarray, op: str = "SUM") -> np.ndarray:
    if dtype == "bfloat16":
        return (elements.astype(np.uint32) << 16).view(np.float32)
    return elements.astype(accumulator_of(dtype, op))


def narrowed(dtype: str, values: np.ndarray) -> np.ndarray:
    if dtype == "bfloat16":
        return values.astype(pytest.importorskip("ml_dtypes").bfloat16).view(np.uint16)
    return values.astype(ELEMENTS[dtype])


def same_elements(dtype: str, got: np.ndarray, expected: np.ndarray) -> None:
    if dtype == "bfloat16":  # compare where NaN is known
        got, expected = widened(dtype, got.view(np.uint16)), widened(dtype, expected)
    same_bits_or_nan(got, expected)


def draw_elements(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    if dtype == "bfloat16":
        return np.ascontiguousarray(draw(rng, np.float32, count).view(np.uint16)[1::2])
    return draw(rng, ELEMENTS[dtype], count)


def unaligned(values: np.ndarray, offset: int) -> np.ndarray:
    """A copy that begins `offset` bytes after an allocation."""
    memory = bytearray(values.nbytes + offset)
    copy = np.frombuffer(memory, values.dtype, values.size, offset)
    copy[...] = values
    return copy


@every_pair
def test_reduce(dtype, op):
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        into, other = (draw(rng, accumulator_of(dtype, op), length) for _ in range(2))
        expected = combined(op, into, other)
        testing.reduce(dtype, op, into, other)
        same_bits_or_nan(into, expected)


@every_pair
def test_reduce_is_commutative_bit_for_bit(dtype, op):
    rng = np.random.default_rng(2)
    a, b = (draw(rng, accumulator_of(dtype, op), 100_003) for _ in range(2))
    ab, ba = a.copy(), b.copy()
    testing.reduce(dtype, op, ab, b)
    testing.reduce(dtype, op, ba, a)
    same_bits(ab, ba)


@pytest.mark.parametrize("op", ["SUM", "PROD", "MIN", "MAX", "AVG"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_reduce_gives_one_nan(dtype, op):
    """Whatever the payloads and their order: agreement between ranks is about bits."""
    accumulator = accumulator_of(dtype, op)
    canonical = CANONICAL_NAN[accumulator]
    unsigned = np.dtype(f"u{np.dtype(accumulator).itemsize}")
    nans = np.array([canonical, canonical | 5, canonical ^ (1 << (unsigned.itemsize * 8 - 1))], unsigned)
    a = np.concatenate([nans, nans[::-1], np.ones(3, accumulator).view(unsigned)]).view(accumulator)
    b = np.concatenate([nans[::-1], np.array([1, np.inf, 0], accumulator).view(unsigned), nans]).view(accumulator)
    testing.reduce(dtype, op, a, b)
    same_bits(a, np.full(a.size, canonical, unsigned).view(accumulator))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op", "a", "b"), [("SUM", np.inf, -np.inf), ("PROD", 0.0, np.inf)])
def test_invalid_operations_give_the_same_nan(dtype, op, a, b):
    accumulator = accumulator_of(dtype, op)
    into, other = (np.full(67, x, accumulator) for x in (a, b))
    testing.reduce(dtype, op, into, other)
    same_bits(into, np.full(67, CANONICAL_NAN[accumulator], f"u{into.itemsize}").view(accumulator))


@every_pair
def test_reduce_with_itself(dtype, op):
    values = draw(np.random.default_rng(3), accumulator_of(dtype, op), 1003)
    expected = combined(op, values, values)
    testing.reduce(dtype, op, values, values)
    same_bits_or_nan(values, expected)


@every_pair
def test_unaligned_memory(dtype, op):
    rng = np.random.default_rng(4)
    for offset_into, offset_from in [(1, 0), (0, 1), (1, 3), (2, 2)]:
        values, total = draw_elements(rng, dtype, 1003), draw(rng, accumulator_of(dtype, op), 1003)
        into, elements = unaligned(total, offset_into), unaligned(values, offset_from)
        testing.accumulate(dtype, op, into, elements)
        same_bits_or_nan(into, combined(op, total, widened(dtype, values, op)))


@averaging
@every_number
def test_load(dtype, op):
    rng = np.random.default_rng(5)
    for length in LENGTHS:
        elements = draw_elements(rng, dtype, length)
        same_bits_or_nan(testing.load(dtype, op, elements), widened(dtype, elements, op))


@every_pair
def test_accumulate(dtype, op):
    rng = np.random.default_rng(6)
    for length in LENGTHS:
        into, elements = draw(rng, accumulator_of(dtype, op), length), draw_elements(rng, dtype, length)
        expected = combined(op, into, widened(dtype, elements, op))
        testing.accumulate(dtype, op, into, elements)
        same_bits_or_nan(into, expected)


@averaging
@every_number
def test_add(dtype, op):
    rng = np.random.default_rng(7)
    for length in (0, 1, 67, 10_003):
        for divisor in DIVISORS:
            into, other = (draw(rng, accumulator_of(dtype, op), length) for _ in range(2))
            expected = combined("SUM", into, quotient(other, divisor))
            testing.add(dtype, op, into, other, divisor)
            same_bits_or_nan(into, expected)


@averaging
@every_number
def test_store(dtype, op):
    rng = np.random.default_rng(8)
    for length in (0, 1, 67, 1024, 10_003):
        for divisor in DIVISORS:
            values = draw(rng, accumulator_of(dtype, op), length)
            same_elements(dtype, testing.store(dtype, op, values, divisor), narrowed(dtype, quotient(values, divisor)))


@averaging
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_divide_towards_zero(dtype, op):
    values = np.array([7, -7, 8, -8, 1, -1, 0])
    if dtype.startswith("u"):
        values = np.abs(values)
    values = values.astype(accumulator_of(dtype, op))
    np.testing.assert_array_equal(testing.store(dtype, op, values, 4), np.trunc(values / 4))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_float_survives(dtype):
    elements = np.arange(65_536, dtype=np.uint16).view(ELEMENTS[dtype])
    wide = testing.load(dtype, "SUM", elements)
    same_bits_or_nan(wide, widened(dtype, elements))
    same_elements(dtype, testing.store(dtype, "SUM", wide, 1), elements)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrowing_rounds_to_nearest_even(dtype):
    """Every midpoint between two neighbours, subnormals and overflow included, and its own neighbours."""
    infinity = 0x7C00 if dtype == "float16" else 0x7F80
    lower = np.arange(infinity, dtype=np.uint16)
    upper = lower + np.uint16(1)
    values = widened(dtype, lower.view(ELEMENTS[dtype])).astype(np.float64)
    beyond = 2.0**16 if dtype == "float16" else 2.0**128  # what the number after the largest would be
    middle = ((values + np.append(values[1:], beyond)) / 2).astype(np.float32)
    even = np.where(lower % 2 == 0, lower, upper)
    for sign, sign_bit in ((1, 0), (-1, 0x8000)):
        for inputs, expected in (
            (np.nextafter(middle, np.float32(0)), lower),
            (middle, even),
            (np.nextafter(middle, np.float32(np.inf)), upper),
        ):
            got = testing.store(dtype, "SUM", np.float32(sign) * inputs, 1)
            np.testing.assert_array_equal(bits(got), expected | np.uint16(sign_bit))


@every_pair
def test_identity(dtype, op):
    accumulator = accumulator_of(dtype, op)
    limits = np.iinfo(accumulator) if dtype in INTEGERS else None
    value = {
        "SUM": 0,
        "AVG": 0,
        "PROD": 1,
        "MIN": limits.max if limits else np.inf,
        "MAX": limits.min if limits else -np.inf,
        "LAND": 1,
        "LOR": 0,
        "LXOR": 0,
        "BAND": limits and ~np.zeros(1, accumulator)[0],
        "BOR": 0,
        "BXOR": 0,
    }[op]
    for count in (0, 1, 67):
        identity = testing.identity(dtype, op, count)
        assert identity.dtype == accumulator
        same_bits(identity, np.full(count, value, accumulator))
    values = draw(np.random.default_rng(9), accumulator, 1003)
    if op == "PROD" and dtype in COMPLEX:
        values = values[np.isfinite(values)]  # (1 + 0i) inf has a part 0 inf
    into = testing.identity(dtype, op, values.size)
    testing.reduce(dtype, op, into, values)
    np.testing.assert_array_equal(into, values != 0 if op in ("LAND", "LOR", "LXOR") else values)


def test_operations_are_defined_where_python_says_so():
    for dtype in ACCUMULATORS:
        for op in OPS:
            try:
                operations.checked_op_on(op, np.dtype(buffers.checked_dtype(dtype)))
                accepted = True
            except TypeError:
                accepted = False
            assert accepted == testing.is_defined(op, dtype), (op, dtype)


@pytest.mark.parametrize(
    ("dtype", "op"), [(dtype, op) for dtype, op in PAIRS if op != "AVG" and dtype not in ("float16", "bfloat16")]
)
def test_mpi_agrees(dtype, op):
    """On values that are not rounded."""
    a, b = (np.array(values).astype(ACCUMULATORS[dtype]) for values in ([0, 1, 2, 0, 12], [0, 0, 1, 3, 10]))
    expected = b.copy()
    getattr(MPI, op).Reduce_local(a, expected)
    testing.reduce(dtype, op, a, b)
    np.testing.assert_array_equal(a, expected)
