"""What is known of arrays on a device. No device is needed: the arrays are made up."""

import ctypes

import numpy as np
import pytest

from pycollectives.support.device_arrays import DeviceArray, _tensor_of, describe_device

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
        tensor = _tensor_of(capsule)
        tensor.device_type, tensor.device = self.kind, self.number
        return capsule


@pytest.mark.parametrize("stream", [None, 1, 2, 0x5555])
def test_the_stream_is_the_producers(stream):
    found = describe_device(Interface(stream=stream))
    assert found == DeviceArray(ADDRESS, (2, 3), np.dtype("float32"), stream, False)
    assert found.count == 6


def test_before_version_3_there_is_no_stream():
    assert describe_device(Interface(version=2, stream="missing")).stream is None


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
            _tensor_of(capsule).byte_offset = 16
            return capsule

    array = np.zeros(3)
    assert describe_device(Shifted(array)).pointer == array.ctypes.data + 16


def test_a_bfloat16_tensor():
    ml_dtypes = pytest.importorskip("ml_dtypes")

    class Halves(Tensor):
        def __dlpack__(self, *, stream=None):
            capsule = super().__dlpack__(stream=stream)
            _tensor_of(capsule).code = 4
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
        _tensor_of(make(4096, b"other", None))


@pytest.mark.parametrize(
    "host", [np.zeros(3), b"123", 5, None, Tensor(np.zeros(3), kind=1), Tensor(np.zeros(3), kind=3)]
)
def test_what_is_not_on_a_device(host):
    assert describe_device(host) is None
