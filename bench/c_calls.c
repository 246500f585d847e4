/* The loops of the benchmark c_calls: timed calls from C, and the work before each call. */
#include <Python.h>
/* first Python.h */
#include <pycollectives.h>
#include <time.h>

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void pass_over(Py_buffer* memory) {
  volatile char* const bytes = (volatile char*)memory->buf;
  for (Py_ssize_t i = 0; i < memory->len; i += 64) ++bytes[i];
}

/* work(memory): read and write each cache line. */
static PyObject* work(PyObject* self, PyObject* memory) {
  Py_buffer view;
  (void)self;
  if (PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE) < 0) return NULL;
  pass_over(&view);
  PyBuffer_Release(&view);
  Py_RETURN_NONE;
}

/* calls(allreduce, memory, times): before each call the work; `times`: int64, for the nanoseconds of each call. None
 * instead of the allreduce: the time of the clock. */
static PyObject* calls(PyObject* self, PyObject* arguments) {
  PyObject* allreduce;
  Py_buffer memory, times;
  pyc_status status = PYC_OK;
  (void)self;
  if (!PyArg_ParseTuple(arguments, "Ow*w*", &allreduce, &memory, &times)) return NULL;
  const int is_call = allreduce != Py_None;
  pyc_collective* const handle = is_call ? pyc_from_python(allreduce) : NULL;
  if (handle != NULL || !is_call) {
    const double x = 1;
    int64_t* const spent = (int64_t*)times.buf;
    const Py_ssize_t count = times.len / (Py_ssize_t)sizeof(int64_t);
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < count && status == PYC_OK; ++i) {
      pyc_request* request = NULL;
      int done = 0;
      pass_over(&memory);
      const int64_t begin = now();
      if (is_call) {
        status = pyc_contribute(handle, &x, 1, PYC_FLOAT64, &request);
        if (status == PYC_OK) status = pyc_test(&request, &done, NULL);
        pyc_request_free(&request);
      }
      spent[i] = now() - begin;
    }
    Py_END_ALLOW_THREADS;
  }
  PyBuffer_Release(&memory);
  PyBuffer_Release(&times);
  if ((is_call && handle == NULL) || pyc_raise_in_python(status) < 0) return NULL;
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"work", work, METH_O, NULL}, {"calls", calls, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "c_calls_loops", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_calls_loops(void) { return PyModule_Create(&module); }
