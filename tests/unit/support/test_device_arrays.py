"""What is known of arrays on a device. No device is needed: the arrays are made up."""

import contextlib
import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pycollectives.support.device_arrays import DeviceArray, describe_device
from pycollectives.support.device_streams import LEGACY_STREAM, handle_of_stream
from pycollectives.support.dlpack import tensor_of

ADDRESS = 0x7F0000001000


class Interface:
    """An array with the CUDA array interface, of 2 x 3 float32."""

    def __init__(self, **changes):
        entries = {"shape": (2, 3), "typestr": "<f4", "data": (ADDRESS, False), "version": 3, **changes}
        self.__cuda_array_interface__ = {key: value for key, value in entries.items() if value != "missing"}


class Tensor:
    """A DLPack exporter that says that the memory of a NumPy array is on a device."""

    def __init__(self, array, kind=2, number=1):
        self.array, self.kind, self.number = array, kind, number
        self.asked_for = None

    def __dlpack_device__(self):
        return self.kind, self.number

    def __dlpack__(self, *, stream=None):
        self.asked_for = stream
        capsule = self.array.__dlpack__()
        tensor = tensor_of(capsule)
        tensor.device_type, tensor.device = self.kind, self.number
        return capsule


@pytest.mark.parametrize("stream", [1, 2, 0x5555])
def test_the_stream_is_the_producers(stream):
    found = describe_device(Interface(stream=stream))
    assert found == DeviceArray(ADDRESS, (2, 3), np.dtype("float32"), stream, False)
    assert found.count == 6


@pytest.mark.parametrize(("version", "stream"), [(3, None), (2, "missing")])
def test_a_stream_that_is_not_named_is_the_legacy_default(version, stream):
    """Numba names none for what a kernel on its default stream may still write; version 2 cannot name one."""
    assert describe_device(Interface(version=version, stream=stream)).stream == LEGACY_STREAM


def test_a_stream_that_is_given_comes_after_the_producers():
    """Both are known: nobody has made one wait for the other."""
    found = describe_device(Interface(stream=0x5555), stream=77)
    assert (found.stream, found.after) == (77, 0x5555)


@pytest.mark.parametrize("named", [None, 77])
def test_a_stream_that_is_given_needs_no_other(named):
    found = describe_device(Interface(stream=named), stream=77)
    assert (found.stream, found.after) == (77, None)


def test_the_array_is_held():
    array = Interface()
    assert describe_device(array).owner is array


@pytest.mark.parametrize("strides", [None, (12, 4)])
def test_contiguous(strides):
    assert describe_device(Interface(strides=strides)).shape == (2, 3)


@pytest.mark.parametrize(
    ("shape", "strides"), [((1, 3), (999, 4)), ((0, 3), (1, 1)), ((), ()), ((3, 1), (4, -7)), ((), None)]
)
def test_strides_that_do_not_matter(shape, strides):
    assert describe_device(Interface(shape=shape, strides=strides)).shape == shape


def test_read_only():
    assert describe_device(Interface(data=(ADDRESS, True))).readonly


@pytest.mark.parametrize(("typestr", "offset"), [("<f4", 2), ("<f8", 4), ("<c8", 2), ("<f2", 1)])
def test_elements_that_are_not_aligned(typestr, offset):
    with pytest.raises(BufferError, match=rf"^expected \w+ at an address that \d divides, got {ADDRESS + offset:#x}$"):
        describe_device(Interface(typestr=typestr, data=(ADDRESS + offset, False)))


def test_elements_that_are_aligned_as_they_need_be():
    """Complex numbers are pairs of floats."""
    assert describe_device(Interface(typestr="<c8", data=(ADDRESS + 4, False))).pointer == ADDRESS + 4


def test_nothing_may_have_no_address():
    found = describe_device(Interface(shape=(0,), data=(None, False)))
    assert (found.pointer, found.count) == (0, 0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"stream": 0}, BufferError, "expected stream None, 1 .*got 0"),
        ({"stream": -1}, BufferError, "got -1"),
        ({"stream": True}, BufferError, "got True"),
        ({"stream": "1"}, BufferError, "got '1'"),
        (
            {"strides": (4, 8)},
            BufferError,
            r"C-contiguous array on the device, got shape \(2, 3\) with strides \(4, 8\)",
        ),
        ({"strides": (24, 4)}, BufferError, "C-contiguous"),
        ({"mask": object()}, BufferError, "no mask"),
        ({"typestr": ">f4"}, TypeError, "native byte order"),
        ({"typestr": "<M8[s]"}, TypeError, "datetime64"),
        ({"data": "missing"}, BufferError, "expected shape, typestr and data"),
        ({"data": 5}, TypeError, "unpack"),
    ],
)
def test_interfaces_refused(changes, error, message):
    with pytest.raises(error, match=message):
        describe_device(Interface(**changes))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int8", "int64", "uint16", "bool"])
def test_dlpack(dtype):
    array = np.zeros((2, 3), dtype)
    tensor = Tensor(array)
    found = describe_device(tensor, stream=77)
    assert (found.pointer, found.shape, found.dtype) == (array.ctypes.data, (2, 3), np.dtype(dtype))
    assert (found.device, found.stream, tensor.asked_for) == (1, 77, 77)


def test_dlpack_lets_the_default_stream_wait():
    tensor = Tensor(np.zeros(3))
    assert describe_device(tensor).stream == tensor.asked_for == 1


def test_dlpack_begins_where_it_says():
    class Shifted(Tensor):
        def __dlpack__(self, *, stream=None):
            capsule = super().__dlpack__(stream=stream)
            tensor_of(capsule).byte_offset = 16
            return capsule

    array = np.zeros(3)
    assert describe_device(Shifted(array)).pointer == array.ctypes.data + 16


def test_a_bfloat16_tensor():
    ml_dtypes = pytest.importorskip("ml_dtypes")

    class Halves(Tensor):
        def __dlpack__(self, *, stream=None):
            capsule = super().__dlpack__(stream=stream)
            tensor_of(capsule).code = 4
            return capsule

    assert describe_device(Halves(np.zeros(3, "float16"))).dtype == np.dtype(ml_dtypes.bfloat16)


def test_managed_memory_is_cudas():
    assert describe_device(Tensor(np.zeros(3), kind=13)).device == 1


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        (Tensor(np.zeros((2, 3)).T), BufferError, r"C-contiguous array on the device, got shape \(3, 2\)"),
        (Tensor(np.zeros(3), kind=10), BufferError, "got Tensor on ROCm device 1"),
        (Tensor(np.zeros(3), kind=77), BufferError, "DLPack type 77"),
    ],
)
def test_tensors_refused(tensor, error, message):
    with pytest.raises(error, match=message):
        describe_device(tensor)


def test_a_capsule_of_another_name_is_refused():
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    with pytest.raises(BufferError, match="a capsule named dltensor"):
        tensor_of(make(4096, b"other", None))


@pytest.mark.parametrize(
    "host", [np.zeros(3), b"123", 5, None, Tensor(np.zeros(3), kind=1), Tensor(np.zeros(3), kind=3)]
)
def test_what_is_not_on_a_device(host):
    assert describe_device(host) is None


# --- streams


class CudaCore:
    """As cuda.core's streams."""

    def __cuda_stream__(self):
        return 0, 0x5555


class PyTorch:
    cuda_stream = 0x5555


class CuPy:
    ptr = 0x5555


class Numba:
    handle = ctypes.c_void_p(0x5555)


@pytest.mark.parametrize("stream", [0x5555, np.int64(0x5555), CudaCore(), PyTorch(), CuPy(), Numba()])
def test_handles_of_streams(stream):
    assert handle_of_stream(stream) == 0x5555
    assert describe_device(Interface(), stream=stream).stream == 0x5555


@pytest.mark.parametrize("attribute", ["cuda_stream", "ptr"])
def test_the_stream_0_is_the_legacy_default(attribute):
    assert handle_of_stream(type("Stream", (), {attribute: 0})()) == LEGACY_STREAM == 1


def test_numbas_default_stream():
    assert handle_of_stream(type("Stream", (), {"handle": ctypes.c_void_p(0)})()) == LEGACY_STREAM


@pytest.mark.parametrize(
    ("stream", "error", "message"),
    [
        ("1", TypeError, "stream: expected a PyTorch, CuPy or Numba stream, .* or a handle; got str"),
        (True, TypeError, "got bool"),
        (1.5, TypeError, "got float"),
        (object(), TypeError, "got object"),
        (-1, ValueError, "at least 0, got -1"),
    ],
)
def test_what_is_no_stream(stream, error, message):
    with pytest.raises(error, match=message):
        describe_device(Interface(), stream=stream)


class Torch:
    """A PyTorch that works on one stream of each device."""

    def __init__(self, streams):
        class FakeTensor(Tensor):
            is_cuda = True

            @property
            def device(self):
                return self.number

        class Stream:
            def __init__(self, cuda_stream):
                self.cuda_stream = cuda_stream

            def __dlpack__(tensor, *, stream=None):  # noqa: N805
                if tensor.device != self.current_device:
                    raise BufferError("Can't export tensors on a different CUDA device index.")
                return super().__dlpack__(stream=stream)

        @contextlib.contextmanager
        def device(number):
            before, self.current_device = self.current_device, number
            yield
            self.current_device = before

        self.current_device = 0
        self.Tensor = FakeTensor
        self.cuda = SimpleNamespace(current_stream=lambda device: Stream(streams[device]), device=device)


@pytest.mark.parametrize(("handle", "stream"), [(0x5555, 0x5555), (0, 1)])
def test_a_tensors_stream_is_the_one_that_pytorch_works_on(monkeypatch, handle, stream):
    torch = Torch({0: 3, 1: handle})
    monkeypatch.setitem(sys.modules, "torch", torch)
    tensor = torch.Tensor(np.zeros(3), number=1)
    assert describe_device(tensor).stream == tensor.asked_for == stream
    assert describe_device(tensor, stream=99).stream == tensor.asked_for == 99
    assert torch.current_device == 0  # again: PyTorch exports tensors of its current device alone


def test_other_arrays_have_no_stream_of_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", Torch({0: 3, 1: 4}))
    assert describe_device(Tensor(np.zeros(3))).stream == LEGACY_STREAM


def test_an_array_with_both_protocols_is_exported_on_its_own_stream():
    """As CuPy's: DLPack is asked for, on the stream that the other protocol names."""
    tensor = Tensor(np.zeros(3))
    tensor.__cuda_array_interface__ = Interface(stream=0x5555).__cuda_array_interface__
    assert describe_device(tensor).stream == tensor.asked_for == 0x5555
    assert describe_device(tensor, stream=77).stream == tensor.asked_for == 77
