/* The C API of pycollectives, in C99: calls that need neither Python nor its GIL.
 *
 * In an extension module of Python, include Python.h first. Python makes the objects, pyc_from_python returns the
 * handle of one, and the calls below use the handle. A program without Python defines PYC_LINKED (the CMake target
 * pycollectives::pycollectives does), includes mpi.h, and makes the objects with pyc_open and pyc_make_*.
 *
 * Each call returns a status. After an error, pyc_error_text explains it. One thread at a time may call an object,
 * except pyc_read and pyc_apply. `count` and `dtype` must be those of the object; this is checked before anything is
 * sent. docs/c-api.md has examples. */
#ifndef PYCOLLECTIVES_H
#define PYCOLLECTIVES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows with each function that is added at the end of pyc_api. */
#define PYC_API_VERSION 1

typedef enum pyc_status {
  PYC_OK = 0,
  PYC_ERR_ARGUMENT,    /* an argument is refused; nothing was sent */
  PYC_ERR_STALL,       /* the time limit; the text names the missing ranks */
  PYC_ERR_RANK_FAILED, /* ranks have died: pyc_failed_ranks */
  PYC_ERR_CLOSED,      /* this rank has left */
  PYC_ERR_MISMATCH,    /* ranks make different calls */
  PYC_ERR_TRANSPORT,   /* MPI reported an error */
  PYC_ERR_INTERRUPTED, /* a signal handler of Python raised, such as Ctrl-C's; its exception is set in this thread */
  PYC_ERR_STATE,       /* not possible now: another thread is in a call, there is no result yet, memory is full, ... */
  PYC_ERR_INTERNAL     /* a defect of the library */
} pyc_status;

typedef enum pyc_dtype {
  PYC_FLOAT16 = 0,
  PYC_BFLOAT16,
  PYC_FLOAT32,
  PYC_FLOAT64,
  PYC_INT8,
  PYC_INT16,
  PYC_INT32,
  PYC_INT64,
  PYC_UINT8,
  PYC_UINT16,
  PYC_UINT32,
  PYC_UINT64,
  PYC_COMPLEX64,
  PYC_COMPLEX128,
  PYC_BOOL
} pyc_dtype;

/* An object of this rank. It lives as long as the Python object, or until pyc_close. */
typedef struct pyc_collective pyc_collective;

/* A contribution whose round this rank has not received. NULL: there is none. */
typedef struct pyc_request pyc_request;

/* The round that a call received; pycollectives.RoundInfo in Python. */
typedef struct pyc_round {
  uint64_t round;
  int32_t initiator;
  int32_t included;      /* 1: this rank's data is in the round */
  uint32_t contributors; /* number of ranks whose data is in it */
  uint32_t active;       /* ... whose data was new */
  uint64_t staleness;
  uint64_t missed; /* rounds whose result this rank did not receive by itself */
  int32_t overrun; /* 1: more than `history` */
} pyc_round;

/* Time limits are in seconds; INFINITY: none; this value: the default of the communicator. */
#define PYC_DEFAULT_TIMEOUT (-1.0)

/* The functions. Call them by the names below the table. */
typedef struct pyc_api {
  int version;

  /* --- Partial allreduce */
  /* Contribute without waiting. `data` may change after the call. Pass the request to pyc_test or pyc_wait once, or to
   * pyc_request_free, even after other calls. */
  pyc_status (*contribute)(pyc_collective* allreduce, const void* data, size_t count, pyc_dtype dtype,
                           pyc_request** request);
  /* Set `done` to 1 if the round of the request is complete. Then `round` (which may be NULL) describes it, pyc_result
   * shows it, and the request is freed and set to NULL. A NULL request is done, and leaves `round` as it is. */
  pyc_status (*test)(pyc_request** request, int* done, pyc_round* round);
  /* Wait for the same. After an error, the request remains. */
  pyc_status (*wait)(pyc_request** request, double timeout, pyc_round* round);
  /* Forget the request. Its data stays contributed. */
  void (*request_free)(pyc_request** request);
  /* Copy the newest result that this rank has received. */
  pyc_status (*result)(pyc_collective* allreduce, void* out, size_t count, pyc_dtype dtype);
  /* Deliver the pending data of all ranks in a synchronous round; collective. */
  pyc_status (*flush)(pyc_collective* allreduce, double timeout, pyc_round* round);

  /* --- Averages in place. After an error, the engine may still use `data` until the communicator is closed. */
  /* Reduce among the ranks of `group`, which includes this one; collective among them. For pyc_preduce_from_python and
   * pyc_make_preduce. */
  pyc_status (*preduce)(pyc_collective* preduce, void* data, size_t count, pyc_dtype dtype, const int32_t* group,
                        size_t members, double timeout);
  /* Average with the next group (partial_reduce) or with the neighbors (neighbor_averaging, push_sum). */
  pyc_status (*average)(pyc_collective* averaging, void* data, size_t count, pyc_dtype dtype, double timeout);

  /* --- Pairwise averaging, from any thread */
  pyc_status (*read)(pyc_collective* pairwise, void* out, size_t count, pyc_dtype dtype);
  pyc_status (*apply)(pyc_collective* pairwise, const void* delta, size_t count, pyc_dtype dtype);

  /* --- Parameter server */
  pyc_status (*push)(pyc_collective* server, const void* gradient, size_t count, pyc_dtype dtype, double timeout);
  /* A worker gets the weights after its push; the call waits until it may continue. */
  pyc_status (*pull)(pyc_collective* server, void* out, size_t count, pyc_dtype dtype, double timeout);

  /* --- The last error of this thread */
  const char* (*error_text)(void);
  /* Copy the first `most` of the dead ranks of PYC_ERR_RANK_FAILED; return their number, 0 if unknown. */
  size_t (*failed_ranks)(int32_t* ranks, size_t most);
} pyc_api;

#define pyc_contribute PYC_API->contribute
#define pyc_test PYC_API->test
#define pyc_wait PYC_API->wait
#define pyc_request_free PYC_API->request_free
#define pyc_result PYC_API->result
#define pyc_flush PYC_API->flush
#define pyc_preduce PYC_API->preduce
#define pyc_average PYC_API->average
#define pyc_read PYC_API->read
#define pyc_apply PYC_API->apply
#define pyc_push PYC_API->push
#define pyc_pull PYC_API->pull
#define pyc_error_text PYC_API->error_text
#define pyc_failed_ranks PYC_API->failed_ranks

#ifdef PYC_LINKED

/* --- Programs without Python: objects are made on all ranks, in the same order, with the same arguments. */

extern const pyc_api pyc_linked_api;
#define PYC_API (&pyc_linked_api)

#ifdef MPI_VERSION

typedef enum pyc_op {
  PYC_SUM = 0,
  PYC_PROD,
  PYC_MIN,
  PYC_MAX,
  PYC_AVG,
  PYC_LAND,
  PYC_LOR,
  PYC_LXOR,
  PYC_BAND,
  PYC_BOR,
  PYC_BXOR
} pyc_op;

/* The ranks of an MPI communicator, with their engine. */
typedef struct pyc_communicator pyc_communicator;

/* Open one on the ranks of `comm`; collective. MPI must be initialized with MPI_THREAD_MULTIPLE. `timeout`: the default
 * of all calls, INFINITY for none. */
pyc_status pyc_open(MPI_Comm comm, double timeout, pyc_communicator** made);
/* Make a partial allreduce; collective. `policy`: "solo", "majority", "full" or "quorum:K". `missed`: "latest" or
 * "sum"; see Communicator.partial_allreduce in Python. */
pyc_status pyc_make_allreduce(pyc_communicator* comm, size_t count, pyc_dtype dtype, pyc_op op, const char* policy,
                              const char* missed, pyc_collective** made);
/* Make the object of pyc_preduce, once; local. */
pyc_status pyc_make_preduce(pyc_communicator* comm, size_t count, pyc_dtype dtype, pyc_op op, pyc_collective** made);
/* Flush and free the objects and the communicator, and wait for all ranks; collective, before MPI_Finalize. After
 * PYC_ERR_STALL, call it again to continue. */
pyc_status pyc_close(pyc_communicator** comm, double timeout);

#endif /* MPI_VERSION */

#elif defined(Py_PYTHON_H)

/* --- Extension modules: each file has its own pointer to the table, which the first *_from_python sets. */

static const pyc_api* pyc_imported_api = NULL;
#define PYC_API pyc_imported_api

/* Import the table; return 0, or -1 with an exception of Python. Needs the GIL, as all functions with Python in their
 * names. */
static inline int import_pycollectives(void) {
  const pyc_api* api;
  PyObject* module = PyImport_ImportModule("pycollectives.support.native"); /* loads mpi4py's MPI first */
  if (module == NULL) return -1;
  Py_DECREF(module);
  api = (const pyc_api*)PyCapsule_Import("pycollectives._core._C_API", 0);
  if (api == NULL) return -1;
  if (api->version < PYC_API_VERSION) {
    PyErr_Format(PyExc_ImportError,
                 "pycollectives: expected version %d of the C API, the installed package has %d: install a newer one",
                 PYC_API_VERSION, api->version);
    return -1;
  }
  pyc_imported_api = api;
  return 0;
}

static inline pyc_collective* pyc_of_capsule(PyObject* capsule) {
  pyc_collective* handle;
  if (capsule == NULL) return NULL;
  handle = (pyc_collective*)PyCapsule_GetPointer(capsule, "pycollectives.collective");
  Py_DECREF(capsule);
  return handle;
}

/* Return the handle of a collective, which lives as long as the object; NULL with an exception of Python. */
static inline pyc_collective* pyc_from_python(PyObject* collective) {
  if (pyc_imported_api == NULL && import_pycollectives() < 0) return NULL;
  return pyc_of_capsule(PyObject_CallMethod(collective, "_c_handle", NULL));
}

/* Return the handle for P-Reduces of arrays of `count` elements on a Communicator, which keeps it. `dtype` and `op`:
 * the names, such as "float64" and "AVG". All ranks must pass the same. NULL with an exception of Python. */
static inline pyc_collective* pyc_preduce_from_python(PyObject* communicator, size_t count, const char* dtype,
                                                      const char* op) {
  if (pyc_imported_api == NULL && import_pycollectives() < 0) return NULL;
  return pyc_of_capsule(PyObject_CallMethod(communicator, "_c_preduce", "nss", (Py_ssize_t)count, dtype, op));
}

/* Raise the error of the last call in this thread as Python's, such as StallError; return -1. PYC_OK: return 0. */
static inline int pyc_raise_in_python(pyc_status status) {
  PyObject *module, *none;
  if (status == PYC_OK) return 0;
  if (status == PYC_ERR_INTERRUPTED && PyErr_Occurred()) return -1;
  module = PyImport_ImportModule("pycollectives._core");
  if (module == NULL) return -1;
  none = PyObject_CallMethod(module, "_raise_c_error", NULL);
  Py_DECREF(module);
  Py_XDECREF(none);
  return -1;
}

#endif /* Py_PYTHON_H */

#ifdef __cplusplus
}
#endif

#endif
