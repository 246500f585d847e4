# cython: language_level=3
"""Each call of the C API, for tests: arrays go in as buffers, errors come out as the exceptions of Python."""

cimport pycollectives as pc
from libc.stdint cimport int32_t, uintptr_t

import numpy as np

DTYPES = {
    "float32": pc.PYC_FLOAT32, "float64": pc.PYC_FLOAT64, "int64": pc.PYC_INT64, "float16": pc.PYC_FLOAT16,
}
CODES = {
    pc.PYC_OK: "ok", pc.PYC_ERR_ARGUMENT: "argument", pc.PYC_ERR_STALL: "stall",
    pc.PYC_ERR_RANK_FAILED: "rank failed", pc.PYC_ERR_CLOSED: "closed", pc.PYC_ERR_MISMATCH: "mismatch",
    pc.PYC_ERR_TRANSPORT: "transport", pc.PYC_ERR_INTERRUPTED: "interrupted", pc.PYC_ERR_STATE: "state",
    pc.PYC_ERR_INTERNAL: "internal",
}
DEFAULT = pc.PYC_DEFAULT_TIMEOUT


class CError(Exception):
    """An error with its code and text."""

    def __init__(self, code, text, ranks):
        super().__init__(f"{code}: {text}")
        self.code, self.text, self.ranks = code, text, ranks


cdef int check(pc.pyc_status status) except -1:
    cdef int32_t ranks[8]
    if status != pc.PYC_OK:
        count = pc.pyc_failed_ranks(ranks, 8)
        raise CError(CODES[status], pc.pyc_error_text().decode(), [ranks[i] for i in range(count)])
    return 0


cdef class Array:
    """The address of an array, or NULL."""

    cdef void *data
    cdef size_t count
    cdef pc.pyc_dtype dtype
    cdef object kept

    def __init__(self, array, dtype=None):
        self.kept = array
        self.data = NULL if array is None else <void *><uintptr_t>array.ctypes.data
        self.count = 1 if array is None else array.size
        self.dtype = DTYPES.get(dtype or ("float64" if array is None else array.dtype.name), <pc.pyc_dtype>99)


cdef class Request:
    cdef pc.pyc_request *request

    def test(self):
        cdef int done = 7
        cdef pc.pyc_round round
        cdef pc.pyc_status status
        round.contributors = 0
        with nogil:
            status = pc.pyc_test(&self.request, &done, &round)
        check(status)
        assert done in (0, 1)
        return (bool(done), round.contributors)

    def wait(self, double timeout=DEFAULT):
        cdef pc.pyc_round round
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_wait(&self.request, timeout, &round)
        check(status)
        return dict(round)

    def raised(self, double timeout):
        """Wait, and raise the exception of Python."""
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_wait(&self.request, timeout, NULL)
        pc.pyc_raise_in_python(status)

    @property
    def is_null(self):
        return self.request == NULL

    def __dealloc__(self):
        pc.pyc_request_free(&self.request)


cdef class Calls:
    """The handle of a collective."""

    cdef pc.pyc_collective *handle
    cdef object of

    def __init__(self, of):
        self.of = of
        self.handle = NULL if of is None else pc.pyc_from_python(of)

    @staticmethod
    def of_preduce(comm, count, dtype, op):
        cdef Calls made = Calls(None)
        made.of = comm
        made.handle = pc.pyc_preduce_from_python(comm, count, dtype.encode(), op.encode())
        return made

    def address(self):
        return <uintptr_t>self.handle

    def contribute(self, x, dtype=None):
        cdef Array a = Array(x, dtype)
        cdef Request request = Request()
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_contribute(self.handle, a.data, a.count, a.dtype, &request.request)
        check(status)
        return request

    def result(self, out):
        cdef Array a = Array(out)
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_result(self.handle, a.data, a.count, a.dtype)
        check(status)
        return out

    def flush(self, double timeout=DEFAULT):
        cdef pc.pyc_round round
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_flush(self.handle, timeout, &round)
        check(status)
        return dict(round)

    def preduce(self, x, group, double timeout=DEFAULT):
        cdef Array a = Array(x)
        cdef int32_t ranks[16]
        cdef size_t members = len(group)
        cdef pc.pyc_status status
        for i, rank in enumerate(group):
            ranks[i] = rank
        with nogil:
            status = pc.pyc_preduce(self.handle, a.data, a.count, a.dtype, ranks, members, timeout)
        check(status)

    def average(self, x, double timeout=DEFAULT):
        cdef Array a = Array(x)
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_average(self.handle, a.data, a.count, a.dtype, timeout)
        check(status)

    def read(self, out):
        cdef Array a = Array(out)
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_read(self.handle, a.data, a.count, a.dtype)
        check(status)
        return out

    def apply(self, delta):
        cdef Array a = Array(delta)
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_apply(self.handle, a.data, a.count, a.dtype)
        check(status)

    def push(self, gradient, double timeout=DEFAULT):
        cdef Array a = Array(gradient)
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_push(self.handle, a.data, a.count, a.dtype, timeout)
        check(status)

    def pull(self, out, double timeout=DEFAULT):
        cdef Array a = Array(out)
        cdef pc.pyc_status status
        with nogil:
            status = pc.pyc_pull(self.handle, a.data, a.count, a.dtype, timeout)
        check(status)
        return out
