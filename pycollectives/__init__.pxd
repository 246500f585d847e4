# `cimport pycollectives`: the C API of include/pycollectives.h, without the GIL. The extension's include_dirs need
# pycollectives.get_include(). docs/c-api.md has an example.

from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef extern from "pycollectives.h" nogil:
    ctypedef struct pyc_collective:
        pass

    ctypedef struct pyc_request:
        pass

    ctypedef enum pyc_status:
        PYC_OK
        PYC_ERR_ARGUMENT
        PYC_ERR_STALL
        PYC_ERR_RANK_FAILED
        PYC_ERR_CLOSED
        PYC_ERR_MISMATCH
        PYC_ERR_TRANSPORT
        PYC_ERR_INTERRUPTED
        PYC_ERR_STATE
        PYC_ERR_INTERNAL

    ctypedef enum pyc_dtype:
        PYC_FLOAT16
        PYC_BFLOAT16
        PYC_FLOAT32
        PYC_FLOAT64
        PYC_INT8
        PYC_INT16
        PYC_INT32
        PYC_INT64
        PYC_UINT8
        PYC_UINT16
        PYC_UINT32
        PYC_UINT64
        PYC_COMPLEX64
        PYC_COMPLEX128
        PYC_BOOL

    ctypedef struct pyc_round:
        uint64_t round
        int32_t initiator
        int32_t included
        uint32_t contributors
        uint32_t active
        uint64_t staleness
        uint64_t missed
        int32_t overrun

    const int PYC_API_VERSION
    const double PYC_DEFAULT_TIMEOUT

    pyc_status pyc_contribute(pyc_collective *, const void *, size_t, pyc_dtype, pyc_request **)
    pyc_status pyc_test(pyc_request **, int *, pyc_round *)
    pyc_status pyc_wait(pyc_request **, double, pyc_round *)
    void pyc_request_free(pyc_request **)
    pyc_status pyc_result(pyc_collective *, void *, size_t, pyc_dtype)
    pyc_status pyc_flush(pyc_collective *, double, pyc_round *)
    pyc_status pyc_preduce(pyc_collective *, void *, size_t, pyc_dtype, const int32_t *, size_t, double)
    pyc_status pyc_average(pyc_collective *, void *, size_t, pyc_dtype, double)
    pyc_status pyc_read(pyc_collective *, void *, size_t, pyc_dtype)
    pyc_status pyc_apply(pyc_collective *, const void *, size_t, pyc_dtype)
    pyc_status pyc_push(pyc_collective *, const void *, size_t, pyc_dtype, double)
    pyc_status pyc_pull(pyc_collective *, void *, size_t, pyc_dtype, double)
    const char *pyc_error_text()
    size_t pyc_failed_ranks(int32_t *, size_t)


cdef extern from "pycollectives.h":
    pyc_collective *pyc_from_python(object) except NULL
    pyc_collective *pyc_preduce_from_python(object, size_t, const char *, const char *) except NULL
    int pyc_raise_in_python(pyc_status) except -1
