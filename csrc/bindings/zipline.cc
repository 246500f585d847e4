// The extension module pycollectives._zipline: ZipLine on NumPy arrays. Separate from _core because it needs no MPI. It
// uses Python's C API, because pybind11 would take nine tenths of its build time.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "bindings/gil.h"
#include "zipline/algorithms.h"
#include "zipline/incremental.h"
#include "zipline/rows.h"

namespace pyc {
namespace {

namespace zl = zipline;

/// Python's error is already set.
struct ErrorIsSet : std::exception {};

/// Returns the new reference from `action`, or sets Python's error from its exception and returns nullptr.
template <class Action>
PyObject* guarded(Action action) noexcept {
  try {
    return action();
  } catch (const ErrorIsSet&) {
    return nullptr;
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

using Function = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

/// In the type of PyMethodDef. Python casts it back.
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

struct Deleted {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Deleted>;

Owned owned(PyObject* made) {
  if (made == nullptr) throw ErrorIsSet();
  return Owned(made);
}

[[noreturn]] void refuse(const char* text) {
  PyErr_SetString(PyExc_TypeError, text);
  throw ErrorIsSet();
}

/// A view of an array's elements.
class View {
 public:
  explicit View(PyObject* array) {
    if (PyObject_GetBuffer(array, &buffer_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
      refuse("expected a contiguous array");
    }
  }
  ~View() { PyBuffer_Release(&buffer_); }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  template <class Element>
  bool has() const {
    const std::string_view format = buffer_.format;
    const bool fits = std::is_same_v<Element, double> ? format == "d" : format == "l" || format == "q";
    return fits && buffer_.itemsize == sizeof(Element);
  }

  /// TypeError unless the elements have that type.
  template <class Element>
  std::span<const Element> of() const {
    if (!has<Element>()) {
      refuse(std::is_same_v<Element, double> ? "expected an array of float64" : "expected an array of int64");
    }
    return {static_cast<const Element*>(buffer_.buf), static_cast<std::size_t>(buffer_.len) / sizeof(Element)};
  }

 private:
  Py_buffer buffer_{};
};

struct Arguments {
  Arguments(PyObject* const* values, Py_ssize_t count) : points((check(count), values[0])), ends(values[1]) {}

  static void check(Py_ssize_t count) {
    if (count != 2) refuse("expected two arguments: points, ends");
  }
  template <class Time>
  zl::Rows<Time> rows() const {
    const zl::Rows<Time> rows{points.of<Time>(), ends.of<std::int64_t>()};
    zl::check_rows(rows);
    return rows;
  }

  View points, ends;
};

PyObject* to_python(std::int64_t value) { return PyLong_FromLongLong(value); }
PyObject* to_python(double value) { return PyFloat_FromDouble(value); }

/// (t_sync, d, iterations)
template <class Time>
PyObject* tuple_of(const zl::Barrier<Time>& barrier) {
  const Owned t_sync = owned(to_python(barrier.t_sync)), d = owned(to_python(barrier.d));
  const Owned iterations = owned(PyTuple_New(static_cast<Py_ssize_t>(barrier.iterations.size())));
  for (std::size_t worker = 0; worker < barrier.iterations.size(); ++worker) {
    PyObject* const iteration = owned(to_python(barrier.iterations[worker])).release();
    PyTuple_SET_ITEM(iterations.get(), static_cast<Py_ssize_t>(worker), iteration);
  }
  return PyTuple_Pack(3, t_sync.get(), d.get(), iterations.get());
}

template <class Time>
PyObject* solve(const Arguments& arguments, zl::Barrier<Time> (*algorithm)(const zl::Rows<Time>&)) {
  const zl::Rows<Time> rows = arguments.rows<Time>();
  zl::Barrier<Time> barrier;
  {
    const GilReleased others_may_run;
    barrier = algorithm(rows);
  }
  return tuple_of(barrier);
}

template <zl::Barrier<std::int64_t> (*OfInt64)(const zl::Rows<std::int64_t>&),
          zl::Barrier<double> (*OfFloat64)(const zl::Rows<double>&)>
PyObject* solved(PyObject*, PyObject* const* values, Py_ssize_t count) {
  return guarded([&] {
    const Arguments arguments(values, count);
    return arguments.points.has<double>() ? solve(arguments, OfFloat64) : solve(arguments, OfInt64);
  });
}

PyObject* check(PyObject*, PyObject* const* values, Py_ssize_t count) {
  return guarded([&] {
    const Arguments arguments(values, count);
    arguments.points.has<double>() ? void(arguments.rows<double>()) : void(arguments.rows<std::int64_t>());
    Py_RETURN_NONE;
  });
}

/// The Python type of Incremental<Time>. Its methods keep the GIL, so threads take turns.
template <class Time>
struct Incremental {
  PyObject_HEAD zl::Incremental<Time>* solver;

  static zl::Incremental<Time>& of(PyObject* self) { return *reinterpret_cast<Incremental*>(self)->solver; }

  static PyObject* make(PyTypeObject* type, PyObject* positional, PyObject* named) {
    return guarded([&] {
      if (named != nullptr && PyDict_GET_SIZE(named) != 0) refuse("expected no named arguments");
      const Arguments arguments(&PyTuple_GET_ITEM(positional, 0), PyTuple_GET_SIZE(positional));
      auto solver = std::make_unique<zl::Incremental<Time>>(arguments.rows<Time>());
      PyObject* const self = owned(type->tp_alloc(type, 0)).release();
      reinterpret_cast<Incremental*>(self)->solver = solver.release();
      return self;
    });
  }
  static void free(PyObject* self) {
    PyTypeObject* const type = Py_TYPE(self);
    delete reinterpret_cast<Incremental*>(self)->solver;
    type->tp_free(self);
    Py_DECREF(type);
  }
  static PyObject* update(PyObject* self, PyObject* const* values, Py_ssize_t count) {
    return guarded([&] {
      if (count != 2) refuse("expected two arguments: worker, row");
      const std::size_t worker = PyLong_AsSize_t(values[0]);
      if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
      const View row(values[1]);
      return tuple_of(of(self).update(worker, row.of<Time>()));
    });
  }
  static PyObject* barrier(PyObject* self, PyObject*) {
    return guarded([&] { return tuple_of(of(self).barrier()); });
  }
  static PyObject* size(PyObject* self, void*) { return PyLong_FromSize_t(of(self).size()); }

  static void define(PyObject* module, const char* name) {
    static PyMethodDef methods[] = {
        {"update", as_method(&update), METH_FASTCALL, nullptr}, {"barrier", &barrier, METH_NOARGS, nullptr}, {}};
    static PyGetSetDef members[] = {{"size", &size, nullptr, nullptr, nullptr}, {}};
    PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(&make)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(&free)},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, members},
                           {0, nullptr}};
    PyType_Spec spec = {name, sizeof(Incremental), 0, Py_TPFLAGS_DEFAULT, slots};
    const Owned type = owned(PyType_FromSpec(&spec));
    const char* const own_name = std::string_view(name).substr(std::string_view(name).rfind('.') + 1).data();
    if (PyModule_AddObjectRef(module, own_name, type.get()) != 0) throw ErrorIsSet();
  }
};

PyMethodDef method(const char* name, Function function) { return {name, as_method(function), METH_FASTCALL, nullptr}; }

PyObject* make_module() {
  static PyMethodDef functions[] = {
      method("check", &check),
      method("zipline_linear", &solved<zl::zipline_linear<std::int64_t>, zl::zipline_linear<double>>),
      method("zipline", &solved<zl::zipline<std::int64_t>, zl::zipline<double>>),
      method("zipline_opt", &solved<zl::zipline_opt<std::int64_t>, zl::zipline_opt<double>>),
      method("zipline_opt_bs", &solved<zl::zipline_opt_bs<std::int64_t>, zl::zipline_opt_bs<double>>),
      method("grid_scan", &solved<zl::grid_scan<std::int64_t>, zl::grid_scan<double>>),
      method("full_grid_scan", &solved<zl::full_grid_scan<std::int64_t>, zl::full_grid_scan<double>>),
      {}};
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "_zipline", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};
  return guarded([] {
    Owned module = owned(PyModule_Create(&definition));
    Incremental<std::int64_t>::define(module.get(), "pycollectives._zipline.IncrementalInt64");
    Incremental<double>::define(module.get(), "pycollectives._zipline.IncrementalFloat64");
    return module.release();
  });
}

}  // namespace
}  // namespace pyc

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): Python's name
PyMODINIT_FUNC PyInit__zipline() { return pyc::make_module(); }
