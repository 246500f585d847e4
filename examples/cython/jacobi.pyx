# cython: language_level=3, boundscheck=False, cdivision=True
"""A Jacobi solver in Cython that uses the newest values of the other ranks, without waiting for them.

The system is 4 x[i] - x[i-1] - x[i+1] = b[i]. Each rank updates its own block of x and contributes the changes. With
missed="sum", a rank receives every change of the others exactly once.
"""

cimport pycollectives as pc
from libc.math cimport fabs


def sweep(object changes, double[::1] x, const double[::1] b, Py_ssize_t first, Py_ssize_t end, int steps):
    """Update block [first, end) of x for some steps without the GIL; return the largest last change.

    `changes`: a partial allreduce of len(x) float64 with op=MPI.SUM.
    """
    cdef pc.pyc_collective *handle = pc.pyc_from_python(changes)
    cdef pc.pyc_status status = pc.PYC_OK
    cdef pc.pyc_request *request = NULL
    cdef Py_ssize_t n = x.shape[0], i
    cdef double left, right, largest = 0
    cdef double[::1] change = x.copy(), received = x.copy()
    cdef int step
    change[:] = 0
    with nogil:
        for step in range(steps):
            largest = 0
            for i in range(first, end):
                left = x[i - 1] if i > 0 else 0
                right = x[i + 1] if i + 1 < n else 0
                change[i] = (b[i] + left + right) / 4 - x[i]
                largest = max(largest, fabs(change[i]))
            for i in range(first, end):
                x[i] += change[i]
            status = pc.pyc_contribute(handle, &change[0], n, pc.PYC_FLOAT64, &request)
            if status == pc.PYC_OK:
                status = pc.pyc_wait(&request, 30.0, NULL)
            pc.pyc_request_free(&request)
            if status == pc.PYC_OK:
                status = pc.pyc_result(handle, &received[0], n, pc.PYC_FLOAT64)
            if status != pc.PYC_OK:
                break
            add_others(x, received, first, end)
    pc.pyc_raise_in_python(status)
    return largest


cdef void add_others(double[::1] x, double[::1] received, Py_ssize_t first, Py_ssize_t end) noexcept nogil:
    """Add the changes outside this rank's block, which already has its own changes."""
    cdef Py_ssize_t i
    for i in range(first):
        x[i] += received[i]
    for i in range(end, x.shape[0]):
        x[i] += received[i]
