/* An extension module in C: ranks count events without waiting for each other, and MPI checks the total.
 *
 * events.count(comm, total, steps): `comm` is mpi4py's communicator, `total` a partial allreduce of one int64 with
 * op=MPI.SUM, which adds up results that a rank has missed. */
#include <Python.h>
/* first Python.h */
#include <mpi.h>
#include <mpi4py/mpi4py.h>
#include <pycollectives.h>

static pyc_status count_events(pyc_collective* total, int rank, int steps, int64_t* sum, int64_t* own) {
  pyc_status status = PYC_OK;
  for (int step = 0; step < steps && status == PYC_OK; ++step) {
    const int64_t events = rank + step % 3;
    int64_t news = 0;
    pyc_request* request = NULL;
    *own += events;
    status = pyc_contribute(total, &events, 1, PYC_INT64, &request);
    if (status == PYC_OK) status = pyc_wait(&request, 30.0, NULL);
    pyc_request_free(&request);
    if (status == PYC_OK) status = pyc_result(total, &news, 1, PYC_INT64);
    if (status == PYC_OK) *sum += news;
  }
  if (status == PYC_OK) {
    int64_t rest = 0;
    status = pyc_flush(total, 30.0, NULL);
    if (status == PYC_OK) status = pyc_result(total, &rest, 1, PYC_INT64);
    *sum += rest;
  }
  return status;
}

static PyObject* count(PyObject* self, PyObject* arguments) {
  PyObject *comm, *object;
  int steps, rank;
  int64_t sum = 0, own = 0, expected = 0;
  pyc_status status;
  (void)self;
  if (!PyArg_ParseTuple(arguments, "OOi", &comm, &object, &steps)) return NULL;
  MPI_Comm* const handle = PyMPIComm_Get(comm);
  pyc_collective* const total = handle == NULL ? NULL : pyc_from_python(object);
  if (total == NULL) return NULL;
  MPI_Comm_rank(*handle, &rank);
  Py_BEGIN_ALLOW_THREADS;
  status = count_events(total, rank, steps, &sum, &own);
  Py_END_ALLOW_THREADS;
  if (pyc_raise_in_python(status) < 0) return NULL;
  MPI_Allreduce(&own, &expected, 1, MPI_INT64_T, MPI_SUM, *handle); /* no rank waits in the partial allreduce now */
  return Py_BuildValue("LL", (long long)sum, (long long)expected);
}

static PyMethodDef methods[] = {{"count", count, METH_VARARGS, "Count events; return the total and MPI's total."},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "events", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_events(void) {
  if (import_mpi4py() < 0) return NULL;
  return PyModule_Create(&module);
}
