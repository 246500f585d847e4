// Helpers for frequent calls, which use Python's C API instead of pybind11.
//
// After a sleep, a rank's caches are cold, and the cost of a call is the number of cache lines that it touches.
// pybind11's dispatcher, its table of instances and the allocators touch hundreds.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "core/hot.h"

namespace pyc {

// These calls use undocumented parts of pybind11: the place of an object's C++ value
// (`detail::instance::simple_value_holder`) and NumPy's function table (`detail::npy_api`, `detail::array_proxy`).
static_assert(PYBIND11_VERSION_HEX >= 0x020D0000 && PYBIND11_VERSION_MAJOR < 4,
              "check these parts of pybind11 before another version is allowed; pyproject.toml names the same bounds");

/// Sets Python's error from the current exception. pybind11 translates it, so the whole module raises the same errors.
PyObject* raise_caught() noexcept;

/// Returns the new reference from `action`, or sets Python's error from its exception and returns nullptr.
template <class Action>
PyObject* guarded(Action action) noexcept {
  try {
    return never_unwound(action);
  } catch (...) {
    return raise_caught();
  }
}

struct GivenArguments {
  PyObject* const* values;  // by position, then by name
  Py_ssize_t positional;
  PyObject* names;  // a tuple, or nullptr
};

struct Parameter {
  const char* name;
  PyObject** value;           // borrowed
  bool by_name_only = false;  // such parameters come last
};

/// Stores the arguments, given by position or by name, at the places in `expected`. Omitted ones keep their values.
/// TypeError unless the first `required` arguments are given and no unexpected ones.
void take_arguments(const char* function, const GivenArguments& given, const Parameter* expected, std::size_t count,
                    std::size_t required);

template <std::size_t Count>
void take_arguments(const char* function, const GivenArguments& given, const std::array<Parameter, Count>& expected,
                    std::size_t required) {
  const auto positional = static_cast<std::size_t>(given.positional);
  const bool fits = positional <= Count && positional >= required;
  if (given.names != nullptr || !fits || (positional > 0 && expected[positional - 1].by_name_only)) {
    return take_arguments(function, given, expected.data(), Count, required);
  }
  for (std::size_t i = 0; i < positional; ++i) *expected[i].value = given.values[i];
}

using FastMethod = PyObject* (*)(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names);

/// In the form of PyMethodDef for METH_FASTCALL | METH_KEYWORDS.
inline PyCFunction as_method(FastMethod method) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method));
}

/// Python objects that hold one `Content` each. A few freed objects are kept for reuse, so that making and freeing one
/// in every call allocates nothing. Guarded by the GIL.
template <class Content>
class Objects {
 public:
  /// Defines the type; `members` ends with slot 0. Only C++ creates objects, and the type cannot be derived from.
  static py::handle define(const char* name, std::vector<PyType_Slot> members) {
    members.insert(members.begin(), {Py_tp_dealloc, reinterpret_cast<void*>(&let_go)});
    PyType_Spec spec{.name = name,
                     .basicsize = static_cast<int>(sizeof(Object)),
                     .itemsize = 0,
                     .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                     .slots = members.data()};
    PyObject* const type = PyType_FromSpec(&spec);
    if (type == nullptr) throw py::error_already_set();
    pool.type = reinterpret_cast<PyTypeObject*>(type);
    return type;
  }

  template <class... Values>
  PYC_HOT static PyObject* make(Values&&... values) {
    static_assert(std::is_nothrow_move_constructible_v<Content>);
    Content made{std::forward<Values>(values)...};
    PyObject* const object = pool.kept > 0 ? pool.objects[--pool.kept] : pool.type->tp_alloc(pool.type, 0);
    if (object == nullptr) throw py::error_already_set();
    ::new (&content(object)) Content(std::move(made));
    return object;
  }

  static Content& content(PyObject* object) { return reinterpret_cast<Object*>(object)->content; }

 private:
  struct Object {
    PyObject_HEAD Content content;
  };

  PYC_HOT static void let_go(PyObject* object) {
    content(object).~Content();
    if (kKeeps && pool.kept < pool.objects.size()) {
      Py_SET_REFCNT(object, 1);  // of the next owner; the object keeps its reference to the type
      pool.objects[pool.kept++] = object;
      return;
    }
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
  }

#if defined(Py_GIL_DISABLED) || defined(Py_REF_DEBUG) || defined(Py_TRACE_REFS)
  static constexpr bool kKeeps = false;  // the interpreter tracks more of an object than its count
#else
  static constexpr bool kKeeps = true;
#endif

  struct alignas(64) Pool {  // a cache line
    PyTypeObject* type = nullptr;
    std::size_t kept = 0;
    std::array<PyObject*, 6> objects{};
  };
  inline static Pool pool;
};

}  // namespace pyc
