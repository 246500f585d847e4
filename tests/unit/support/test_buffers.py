"""Buffers: whose memory is used as it is, and what is refused with what to do."""

import array
import gc

import numpy as np
import pytest

from pycollectives.support import buffers
from pycollectives.support.buffers import BufferDescription, describe, matching_array
from pycollectives.support.dlpack import versioned_of


def address(exporter):
    return np.asarray(exporter).__array_interface__["data"][0]


class DLPackOnly:
    """Exports DLPack and nothing else, as tensors of some libraries do."""

    def __init__(self, owner, device=1):
        self.owner = owner
        self.device = device

    def __dlpack__(self, **kwargs):
        return self.owner.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return (self.device, 0)


class Halves(DLPackOnly):
    """Exports 16-bit words as bfloat16, in capsules of version 1."""

    def __dlpack__(self, **kwargs):
        capsule = super().__dlpack__(**{**kwargs, "max_version": (1, 0)})
        versioned_of(capsule).tensor.code = 4
        return capsule


class CudaOnly:
    __cuda_array_interface__ = {"shape": (3,), "typestr": "<f8", "data": (4096, False), "version": 3}  # noqa: RUF012


@pytest.mark.parametrize("name", [name for name in buffers.DTYPE_NAMES if name != "bfloat16"])
def test_every_type_is_described(name):
    assert describe(np.zeros((2, 3), name)) == BufferDescription((2, 3), np.dtype(name))


def test_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.ones((2, 2), ml_dtypes.bfloat16)
    description = describe(x)
    assert description.dtype.name == "bfloat16"
    exported = buffers.as_bytes_exporter(matching_array(x, description))
    assert memoryview(exported).nbytes == 8
    assert address(exported) == address(x)
    assert buffers.checked_dtype("bfloat16") == x.dtype
    assert describe(ml_dtypes.bfloat16(1)).shape == ()


@pytest.mark.parametrize("make", [lambda x: x, memoryview, DLPackOnly, lambda x: [x, 3, "d"], lambda x: (x, 3)])
def test_memory_is_shared_never_copied(make):
    x = np.arange(3.0)
    found = matching_array(make(x), describe(x))
    assert address(found) == address(x)
    assert found.dtype == np.float64


def test_array_of_the_standard_library():
    assert describe(array.array("f", [1, 2])) == BufferDescription((2,), np.dtype("float32"))


@pytest.mark.parametrize("scalar", [np.float32(2), np.array(2, "float32")])
def test_scalars_have_no_dimensions_and_count_one(scalar):
    description = describe(scalar)
    assert description.shape == ()
    assert description.count == 1


def test_count_zero():
    assert describe(np.empty((0, 4))).count == 0


@pytest.mark.parametrize("other", [np.longlong, "q", "l", int])
def test_other_names_of_one_type(other):
    assert buffers.checked_dtype(other).name == "int64"


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (np.zeros(3, ">f8"), TypeError, "native byte order"),
        (np.zeros(3, np.longdouble), TypeError, r"got float128|got longdouble"),
        (np.zeros(3, object), TypeError, "got object"),
        (np.zeros(3, "M8[s]"), TypeError, "datetime64"),
        (np.zeros(3, [("a", "f4")]), TypeError, "expected one of"),
        (np.zeros((3, 4)).T, BufferError, r"C-contiguous buffer, got shape \(4, 3\)"),
        (np.zeros(8)[::2], BufferError, "C-contiguous"),
        (memoryview(np.zeros(8))[::2], BufferError, "C-contiguous"),
        (DLPackOnly(np.zeros(8)[::2]), BufferError, "C-contiguous"),
        (DLPackOnly(np.zeros(3), device=2), BufferError, "on CUDA device 0: copy it to the host first"),
        (DLPackOnly(np.zeros(3), device=77), BufferError, "on device of DLPack type 77, number 0: copy it"),
        (CudaOnly(), BufferError, "a CUDA device: copy it to the host first; .* pairwise_averaging with such an array"),
        (3.0, TypeError, "got float; convert it"),
        ([1.0, 2.0], TypeError, "got list; convert it"),
        ("text", TypeError, "got str"),
        (None, TypeError, "got NoneType"),
    ],
)
def test_refused(bad, error, message):
    with pytest.raises(error, match=message):
        describe(bad)


@pytest.mark.parametrize(
    ("spec", "count", "dtype"),
    [
        ([np.zeros(5), 3], 3, "float64"),
        ([np.zeros(5), "d"], 5, "float64"),
        ([np.zeros((2, 3), "f4"), 4, "f"], 4, "float32"),
        ((np.zeros(5), 0, "d"), 0, "float64"),
        ([bytearray(16), "d"], 2, "float64"),
        ([bytearray(16), 3, "int32"], 3, "int32"),
        ([np.zeros(5), 3, 2, "d"], 3, "float64"),
        ([np.zeros(5), (3, 2), "d"], 3, "float64"),
        ([np.zeros(5), (3, 2)], 3, "float64"),
        ([bytearray(16), 1, 3, "int32"], 1, "int32"),
        ([np.zeros(5), None, 2, "d"], 3, "float64"),
    ],
)
def test_specifications(spec, count, dtype):
    assert describe(spec) == BufferDescription((count,), np.dtype(dtype))


def test_a_displacement_counts_elements():
    x = np.arange(5.0)
    assert buffers.array_of([x, 2, 3, "d"]).tolist() == [3.0, 4.0]
    assert np.shares_memory(buffers.array_of([x, (2, 3)]), x)


def test_who_has_gaps_is_told_how_to_copy_in_the_words_of_its_library():
    with pytest.raises(BufferError, match=r"if you want a copy, pass numpy\.ascontiguousarray\(x\)"):
        describe(np.zeros((3, 4)).T)
    torch = pytest.importorskip("torch")
    for gaps in (torch.zeros(3, 4).T, torch.zeros(8)[::2]):
        with pytest.raises(BufferError, match=r"if you want a copy, pass x\.contiguous\(\)"):
            describe(gaps)
        assert describe(gaps.contiguous()).count == gaps.numel()


def test_specifications_with_mpi_datatypes():
    MPI = pytest.importorskip("mpi4py.MPI")  # noqa: N806
    assert describe([np.zeros(5), 3, MPI.DOUBLE]) == BufferDescription((3,), np.dtype("float64"))
    assert describe([np.zeros(5, "int32"), MPI.INT]).count == 5
    assert buffers.checked_dtype(MPI.INT64_T) == np.dtype("int64")
    with pytest.raises(TypeError, match="dtype"):
        buffers.checked_dtype(MPI.DOUBLE_INT)
    assert buffers.checked_dtype(MPI.C_BOOL) == np.dtype("bool")
    assert buffers.checked_dtype(MPI.UINT16_T) == np.dtype("uint16")
    assert buffers.checked_dtype(MPI.C_DOUBLE_COMPLEX) == np.dtype("complex128")


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ([np.zeros(3), 4, "d"], ValueError, "count of 0 to 3, the number of elements, got 4"),
        ([np.zeros(3), -1], ValueError, "got -1"),
        ([np.zeros(3), 1.5], TypeError, "integer count, got 1.5"),
        ([np.zeros(3, "f4"), 3, "d"], TypeError, "elements of float64, as specified, got float32"),
        ([bytearray(15), "d"], ValueError, "15 bytes"),
        ([np.zeros(8)[::2], 2], BufferError, "C-contiguous"),
        ([np.zeros(3), 2, 2, "d"], ValueError, "count of 0 to 1, the number of elements, got 2"),
        ([np.zeros(3), 1, 4, "d"], ValueError, "displacement of 0 to 3, the number of elements, got 4"),
        ([np.zeros(3), (1, -1), "d"], ValueError, "displacement of 0 to 3"),
        ([np.zeros(6), (1, 2, 3), "d"], TypeError, r"one block, .* got \(1, 2, 3\), as in mpi4py's vector form"),
        ([np.zeros(6), (1,), "d"], TypeError, r"got \(1,\), as in mpi4py's vector form"),
        ([np.zeros(6), [1, 2], "d"], TypeError, r"got \[1, 2\], as in mpi4py's vector form"),
        ([np.zeros(6), np.array([1, 2]), "d"], TypeError, r"got array\(\[1, 2\]\), as in mpi4py's vector form"),
        ([np.zeros(6), ([1, 2], [0, 1]), "d"], TypeError, r"got \[1, 2\], as in mpi4py's vector form"),
        ([np.zeros(6), (1, 2), (0, 1), "d"], TypeError, r"got \(1, 2\), .* give one count and one displ, or copy"),
        ([np.zeros(6), 2, (0, 1), "d"], TypeError, r"got \(0, 1\), as in mpi4py's vector form"),
    ],
)
def test_specifications_refused(spec, error, message):
    with pytest.raises(error, match=message):
        describe(spec)


EXPECTED = BufferDescription((2, 3), np.dtype("float32"))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (np.zeros((2, 4), "f4"), ValueError, r"expected shape \(2, 3\) \(6 elements\), got \(2, 4\) \(8 elements\)"),
        (np.zeros((2, 3), "f8"), TypeError, "expected elements of float32, got float64"),
        (np.zeros((3, 2), "f4").T, BufferError, "C-contiguous"),
    ],
)
def test_mismatching_contributions(given, error, message):
    with pytest.raises(error, match=message):
        matching_array(given, EXPECTED)


@pytest.mark.parametrize("shape", [(3, 2), (6,), (1, 6)])
def test_only_the_count_matters(shape):
    assert matching_array(np.zeros(shape, "f4"), EXPECTED).size == 6


def test_a_specification_is_flat():
    assert matching_array([np.zeros(10, "f4"), 6], EXPECTED).size == 6


def test_results_need_writable_memory():
    out = np.zeros(6, "f4")
    assert address(matching_array(out, EXPECTED, writable=True)) == address(out)
    with pytest.raises(BufferError, match="read-only"):
        matching_array([bytes(24), "f"], EXPECTED, writable=True)


def test_memory_of_an_exporter_without_versions_is_writable():
    """NumPy takes it for read-only. So exports PyTorch before 2.6."""

    class Unversioned(DLPackOnly):
        def __dlpack__(self, *, stream=None):
            return self.owner.__dlpack__(stream=stream)

        def __array__(self, dtype=None, copy=None):
            return self.owner

    x = np.arange(3.0)
    assert not np.from_dlpack(Unversioned(x)).flags.writeable
    found = buffers.as_array(Unversioned(x))
    assert found.flags.writeable
    assert address(found) == address(x)
    x.flags.writeable = False
    assert not buffers.as_array(x).flags.writeable


def test_a_foreign_byte_order_is_named():
    with pytest.raises(TypeError, match=r"native byte order, got '>f4'; convert with x.astype"):
        matching_array(np.zeros(6, ">f4"), EXPECTED)


def test_bfloat16_of_pytorch_is_taken_as_it_is():
    """NumPy does not know it in a capsule."""
    torch = pytest.importorskip("torch")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    found = buffers.as_array(x)
    assert found.dtype == np.dtype(ml_dtypes.bfloat16)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    found[1, 2] = 7
    assert x[1, 2] == 7
    assert buffers.as_array(x.T).strides == (2, 6)
    assert buffers.as_array(x[1:]).tolist() == [[3, 4, 7]]
    assert buffers.as_array(torch.zeros(0, dtype=torch.bfloat16)).shape == (0,)


@pytest.mark.parametrize("read_only", [False, True])
def test_bfloat16_is_writable_unless_its_exporter_tells_that_it_is_not(read_only):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    words = np.zeros(3, np.uint16)
    words.flags.writeable = not read_only
    exporter = Halves(words)
    out = BufferDescription((3,), np.dtype(ml_dtypes.bfloat16))
    if read_only:
        with pytest.raises(BufferError, match="expected a writable buffer, got a read-only one"):
            matching_array(exporter, out, writable=True)
    else:
        matching_array(exporter, out, writable=True)[1] = 2
        assert words[1] == 0x4000
    assert matching_array(exporter, out).dtype == out.dtype


def test_the_memory_of_bfloat16_lives_as_long_as_the_array():
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    found = buffers.as_array(torch.full((1000,), 3.0, dtype=torch.bfloat16))
    gc.collect()
    assert set(found.tolist()) == {3.0}


def test_other_types_that_numpy_does_not_know_are_refused_with_what_works():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"dtype: expected one of float16, bfloat16, .*; got complex32"):
        buffers.as_array(torch.zeros(3, dtype=torch.complex32))
    with pytest.raises(BufferError, match="require gradient"):
        buffers.as_array(torch.zeros(3, dtype=torch.bfloat16, requires_grad=True))
