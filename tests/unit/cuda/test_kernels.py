"""The kernels against the host's loops, bit for bit: their host instantiation, which the simulated driver runs.

Where there is a GPU, the same tests run the kernels there.
"""

from __future__ import annotations

import numpy as np
import pytest
from devices import Gpu, Host, Simulated, bits, needs_cuda, wait

from pycollectives import _testing as testing

pytestmark = needs_cuda

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = [f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)]
OPS = ["SUM", "PROD", "MIN", "MAX", "AVG"]
COMPLEX = ["complex64", "complex128"]
PAIRS = [(op, dtype) for dtype in FLOATS + INTEGERS for op in OPS]
PAIRS += [(op, dtype) for dtype in COMPLEX for op in ("SUM", "AVG")]
COUNTS = [1, 7, 16, 129, 1000]


def draw(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Values of every magnitude, and the extreme ones; bfloat16 by its bits."""
    kind = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    values = rng.integers(0, 256, count * kind.itemsize, dtype=np.uint8).view(kind)
    if kind.kind not in "fc":
        return values
    ordinary = rng.standard_normal(count).astype(kind)
    extreme = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], kind.char.lower()), count)
    choice = rng.integers(0, 3, count)
    return np.where(choice == 0, values, np.where(choice == 1, ordinary, extreme)).astype(kind)


@pytest.fixture(params=[Simulated, pytest.param(Gpu, marks=pytest.mark.gpu)], ids=["simulated driver", "gpu"])
def machines(request):
    """The host and a device."""
    device = request.param(seed=5)
    yield Host(), device
    device.end()


def folded(machine, dtype, op, arrays, divisor, shift=0):
    """What an executor folds; with `shift`, no operand is aligned to 16 bytes."""
    blocks = [machine.put(np.concatenate([a[:shift], a])) for a in arrays]
    out = machine.put(np.concatenate([arrays[0][:shift], arrays[0]]))
    offset = shift * arrays[0].itemsize
    stream, event = machine.executor.new_stream(), machine.executor.new_event()
    inputs = [block.address + offset for block in blocks]
    stream.fold(dtype, op, [out.address + offset], inputs, len(arrays[0]), divisor)
    stream.record(event)
    wait(event.reached)
    found = out.get()[shift:]
    for block in (*blocks, out):
        block.free()
    return found


@pytest.mark.parametrize(("op", "dtype"), PAIRS)
def test_folds_give_the_bits_of_the_host(machines, op, dtype):
    rng = np.random.default_rng(11)
    for count in COUNTS:
        for inputs in (1, 2, 5, 9):
            arrays = [draw(rng, dtype, count) for _ in range(inputs)]
            divisor = inputs if op == "AVG" else 1
            expected, found = (folded(machine, dtype, op, arrays, divisor) for machine in machines)
            np.testing.assert_array_equal(bits(found), bits(expected), f"{count} elements, {inputs} inputs")


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_nan_that_is_divided_keeps_its_bits(machines, dtype):
    """Of one contribution, which is added to nothing; a signalling one becomes quiet."""
    bits_of = {
        "float16": [0x7E01, 0xFE55, 0x7D01],
        "bfloat16": [0x7FC1, 0xFFD5, 0x7FA1],
        "float32": [0x7FC00001, 0xFFD55555, 0x7FA00001],
        "float64": [0x7FF8000000000001, 0xFFFA555555555555, 0x7FF4000000000001],
    }[dtype]
    width = 64 if dtype == "float64" else 32 if dtype == "float32" else 16
    unsigned = np.array(bits_of * 11, f"uint{width}")
    values = unsigned if dtype == "bfloat16" else unsigned.view(dtype)
    expected, found = (folded(machine, dtype, "AVG", [values], 3) for machine in machines)
    quiet = unsigned | {"float16": 0x200, "bfloat16": 0x40, "float32": 1 << 22, "float64": 1 << 51}[dtype]
    for result in (expected, found):
        np.testing.assert_array_equal(result.view(unsigned.dtype), quiet.astype(unsigned.dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "complex64"])
def test_operands_that_are_not_aligned(machines, dtype):
    arrays = [draw(np.random.default_rng(r), dtype, 301) for r in range(3)]
    expected, found = (folded(machine, dtype, "SUM", arrays, 1, shift=1) for machine in machines)
    np.testing.assert_array_equal(bits(found), bits(expected))


def test_a_fold_is_in_the_order_of_its_inputs(machines):
    """In float32, 1 is lost beside 1e8 and is not where the large ones cancel first."""
    values = [np.full(40, x, "float32") for x in (1e8, 1.0, -1e8, 1.0)]
    for machine in machines:
        assert folded(machine, "float32", "SUM", values, 1).tolist() == [1.0] * 40
        assert folded(machine, "float32", "SUM", [values[i] for i in (0, 2, 1, 3)], 1).tolist() == [2.0] * 40


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_added_up_in_float32(machines, dtype):
    """4096 + 1 + ... + 1 in 16 bits would stay 4096."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype("float16" if dtype == "float16" else ml_dtypes.bfloat16)
    arrays = [np.full(20, x, kind) for x in [4096.0] + [1.0] * 32]
    exact = np.sum([a.astype(np.float64) for a in arrays], axis=0).astype(kind)
    for machine in machines:
        found = folded(machine, dtype, "SUM", [a.view(np.uint16) for a in arrays], 1)
        assert (found.view(kind) == exact).all()
        assert float(exact[0]) > 4096


@pytest.mark.parametrize("dtype", FLOATS)
def test_weighted_sums_give_the_bits_of_the_host(machines, dtype):
    rng = np.random.default_rng(3)
    kind = np.dtype("float16" if dtype == "bfloat16" else dtype)
    arrays = [rng.standard_normal(133).astype(kind) for _ in range(3)]
    if dtype == "bfloat16":
        arrays = [(a.astype("float32").view("uint32") >> 16).astype("uint16") for a in arrays]
    for factors in ([0.3], [0.5, 0.5], [0.1, 0.7, 0.2]):
        found = []
        for machine in machines:
            blocks = [machine.put(a) for a in arrays[: len(factors)]]
            out = machine.put(arrays[0])
            stream, event = machine.executor.new_stream(), machine.executor.new_event()
            stream.weighted_sum(dtype, [out.address], [b.address for b in blocks], factors, 133)
            stream.record(event)
            while not event.reached():
                pass
            found.append(out.get())
            for block in (*blocks, out):
                block.free()
        np.testing.assert_array_equal(bits(found[0]), bits(found[1]))
        if dtype == "float64":
            exact = sum(f * a for f, a in zip(factors, arrays, strict=False))
            np.testing.assert_allclose(found[0], exact, rtol=1e-15)


WIDENED = [("SUM", "float16"), ("SUM", "bfloat16"), *(("AVG", d) for d in INTEGERS if d != "uint64")]


@pytest.mark.parametrize(("op", "dtype"), WIDENED)
def test_conversions_give_the_bits_of_the_host(machines, op, dtype):
    values = draw(np.random.default_rng(7), dtype, 77)
    wide = testing.load(dtype, op, values)
    for divisor in (1, 3):
        expected = testing.store(dtype, op, wide, divisor)
        for machine in machines:
            source, middle, out = machine.put(values), machine.put(np.zeros_like(wide)), machine.put(values)
            stream, event = machine.executor.new_stream(), machine.executor.new_event()
            stream.load(dtype, op, middle.address, source.address, 77)
            stream.store(dtype, op, out.address, middle.address, 77, divisor)
            stream.record(event)
            while not event.reached():
                pass
            np.testing.assert_array_equal(bits(middle.get()), bits(wide))
            np.testing.assert_array_equal(bits(out.get()), bits(expected))
            for block in (source, middle, out):
                block.free()


@pytest.mark.parametrize(
    ("op", "dtype", "divisor"),
    [("BAND", "int32", 1), ("LOR", "int8", 1), ("PROD", "complex64", 1), ("MIN", "float32", 2), ("LAND", "bool", 1)],
)
def test_what_no_kernel_does_is_refused(op, dtype, divisor):
    device = Simulated()
    stream, block = device.executor.new_stream(), device.put(np.zeros(4, "complex128"))
    with pytest.raises(ValueError, match=rf"expected SUM, PROD, MIN, MAX or AVG of numbers, got {op}.* of {dtype}"):
        stream.fold(dtype, op, [block.address], [block.address], 4, divisor)
    block.free()
    del stream
    device.end()


def test_there_are_at_most_64_operands():
    device = Simulated()
    stream, block = device.executor.new_stream(), device.put(np.ones(4))
    stream.fold("float64", "SUM", [block.address], [block.address] * 64, 4)
    with pytest.raises(ValueError, match="at most 64 operands of a kernel, got 65"):
        stream.fold("float64", "SUM", [block.address], [block.address] * 65, 4)
    device.driver.finish()
    assert block.get().tolist() == [64.0] * 4
    block.free()
    del stream
    device.end()
