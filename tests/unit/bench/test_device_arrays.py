"""Arrays on devices, as benchmarks have them: by a stand-in for CuPy, PyTorch on the host, and the simulated driver.

What CuPy, PyTorch and NCCL do on a GPU is not tested here; that they are called in the right way is.
"""

from __future__ import annotations

import ctypes
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from devices import HAS_CUDA
from mpi4py import MPI

BENCH = Path(__file__).resolve().parents[3] / "bench"
sys.path.insert(0, str(BENCH))

from common import device_arrays  # noqa: E402
from common.arrays import HOST, Place  # noqa: E402
from common.device_arrays import CupyArrays, TorchArrays, arrays_on  # noqa: E402
from common.device_subjects import TOLD, why_no_nccl  # noqa: E402
from common.errors import RunError  # noqa: E402
from common.patterns import Model  # noqa: E402
from simulated_arrays import SimulatedArrays  # noqa: E402


class CupyArray(np.ndarray):
    """Memory of the host, with what CuPy's arrays have."""

    def set(self, host, stream):
        assert isinstance(stream, CupyStream)
        self[:] = host

    def get(self, out, stream):
        assert isinstance(stream, CupyStream)
        out[:] = self
        return out

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


class CupyStream:
    ptr = 7

    def __init__(self, non_blocking):
        assert non_blocking

    def use(self):
        pass

    def synchronize(self):
        pass


class CupyNccl:
    """Of one rank."""

    NCCL_SUM, NCCL_FLOAT32 = 0, 7

    @staticmethod
    def get_version():
        return 23003

    @staticmethod
    def get_unique_id():
        return (1, 2)

    class NcclCommunicator:
        def __init__(self, ranks, unique, rank):
            assert (ranks, unique, rank) == (1, (1, 2), 0)

        def allReduce(self, source, to, count, kind, op, stream):  # noqa: N802
            assert (kind, op, stream) == (7, 0, CupyStream.ptr)
            floats = ctypes.c_float * count
            floats.from_address(to)[:] = floats.from_address(source)[:]


@pytest.fixture
def cupy(monkeypatch):
    """Put a stand-in where CuPy would be."""
    cupy, cupyx, cuda = types.ModuleType("cupy"), types.ModuleType("cupyx"), types.ModuleType("cupy.cuda")
    cupy.__version__ = "0"
    cupy.empty = lambda count, dtype: np.empty(count, dtype).view(CupyArray)
    cupy.multiply = np.multiply
    cupyx.empty_pinned = np.empty
    cuda.Device = lambda number: types.SimpleNamespace(use=lambda: None)
    cuda.Stream, cuda.nccl = CupyStream, CupyNccl
    cuda.runtime = types.SimpleNamespace(getDeviceCount=lambda: 2)
    cupy.cuda = cuda
    for module in (cupy, cupyx, cuda):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return cupy


def of_cupy(request):
    request.getfixturevalue("cupy")
    return CupyArrays(1)


def of_torch(request):
    torch = pytest.importorskip("torch")
    monkeypatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: types.SimpleNamespace(synchronize=lambda: None))
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    empty = torch.empty
    monkeypatch.setattr(
        torch, "empty", lambda count, *, dtype, device=None, pin_memory=False: empty(count, dtype=dtype)
    )
    return TorchArrays(1)


def of_simulated_driver(request):
    if not HAS_CUDA:
        pytest.skip("built with PYC_CUDA=OFF")
    SimulatedArrays.use(5, devices=2, has_nccl=True)
    request.addfinalizer(SimulatedArrays.use_no_more)
    return SimulatedArrays(1)


@pytest.fixture(params=[of_cupy, of_torch, of_simulated_driver])
def arrays(request):
    return request.param(request)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "int32", "int64", "uint8"])
def test_values_come_back(arrays, dtype):
    host = np.arange(20).astype(dtype)
    array = arrays.mirror(host)
    arrays.upload(array, host + host.dtype.type(1))
    got = arrays.download(array)
    assert got.dtype == host.dtype
    np.testing.assert_array_equal(got, np.arange(1, 21))
    np.testing.assert_array_equal(arrays.sample(array, np.array([0, 7, 19])), [1, 8, 20])


def test_copies_of_pinned_memory_and_of_slices(arrays):
    array = arrays.mirror(np.zeros(6, np.float32))
    pinned = arrays.pinned(2, np.float32)
    pinned[:] = 3, 4
    arrays.copy_in(array[4:], pinned)
    arrays.scale(array, 0.5)
    back = arrays.pinned(6, np.float32)
    arrays.copy_out(back, array)
    arrays.synchronize()
    np.testing.assert_array_equal(back, [0, 0, 0, 0, 1.5, 2])


def test_the_weights_of_a_worker(arrays):
    model = Model(100, 2, extra=1, arrays=arrays)
    assert (model.sampled_value(), model.value()) == (3, 3)
    arrays.upload(model.buffer[40:41], np.array([99], np.float32))
    assert model.value() is None


def test_nccl_of_cupy(request):
    arrays = of_cupy(request)
    assert arrays.why_no_nccl() == ""
    x, out = arrays.mirror(np.arange(4, dtype=np.float32)), arrays.mirror(np.zeros(4, np.float32))
    arrays.nccl(MPI.COMM_SELF)(x, out)
    np.testing.assert_array_equal(arrays.download(out), np.arange(4))


def test_where_nccl_is_left_out(request):
    arrays = of_cupy(request)
    assert why_no_nccl(MPI.COMM_SELF, arrays, np.dtype("float32")) == ""
    assert why_no_nccl(MPI.COMM_SELF, arrays, np.dtype("int16")) == "it does not reduce int16"
    CupyNccl.available = False
    request.addfinalizer(lambda: delattr(CupyNccl, "available"))
    assert why_no_nccl(MPI.COMM_SELF, arrays, np.dtype("float32")) == "this CuPy has none"


def test_ranks_that_share_a_device_need_an_nccl_that_is_told_so(request, monkeypatch):
    arrays = of_cupy(request)
    arrays.place = Place("cuda", "H200", "CuPy 0", ranks_per_device=8)
    monkeypatch.delenv(TOLD, raising=False)
    reason = "several ranks share a device, which needs NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1; this is NCCL 2."
    assert why_no_nccl(MPI.COMM_SELF, arrays, np.dtype("float32")) == f"{reason}30"
    monkeypatch.setenv(TOLD, "1")
    assert why_no_nccl(MPI.COMM_SELF, arrays, np.dtype("float32")) == ""
    monkeypatch.setattr(CupyNccl, "get_version", lambda: 22907)
    assert why_no_nccl(MPI.COMM_SELF, arrays, np.dtype("float32")) == f"{reason}29"


def test_the_first_library_that_can_is_taken(request, monkeypatch):
    of_simulated_driver(request)
    request.getfixturevalue("cupy")
    made = arrays_on("cuda", MPI.COMM_SELF)
    assert isinstance(made, CupyArrays)
    assert (made.device, made.place) == (0, Place("cuda", "simulated driver's device", "CuPy 0", 1))
    assert arrays_on("cpu", MPI.COMM_SELF) is HOST


def test_without_a_library_both_are_named(request, monkeypatch):
    of_simulated_driver(request)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RunError, match=r"needs CuPy \(pip .*\) or a PyTorch with CUDA: CuPy: .*; PyTorch: "):
        arrays_on("cuda", MPI.COMM_SELF)


def test_without_a_device_there_is_a_reason(monkeypatch):
    monkeypatch.setattr(device_arrays.core, "cuda_availability", lambda: {"reason": "no driver: why", "devices": []})
    with pytest.raises(RunError, match=r"^--device cuda: CUDA is off: no driver: why$"):
        arrays_on("cuda", MPI.COMM_SELF)


def test_how_a_place_is_shown():
    place = Place("cuda", "H200", "CuPy 13", ranks_per_device=8)
    assert place.notes() == ["arrays on cuda devices: H200, by CuPy 13; 8 ranks share one"]
    assert Place("cuda", "H200", "CuPy 13").notes() == ["arrays on cuda devices: H200, by CuPy 13"]
    assert place.path("board") == "board, cuda"
    assert place.as_json()["ranks_per_device"] == 8
    assert (HOST.place.notes(), HOST.place.as_json(), HOST.place.path("flat")) == ([], {}, "flat")
