// For what is called so often that it is written against Python's C API instead of pybind11.
//
// A rank that comes out of a sleep finds nothing in its caches, and then what a call costs is the number of cache lines
// that it touches: pybind11's dispatcher, its table of instances and the allocators touch hundreds.
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

// The hand-written calls use what pybind11 does not document: where an object keeps its C++ value
// (`detail::instance::simple_value_holder`), and NumPy's function table (`detail::npy_api`, `detail::array_proxy`).
static_assert(PYBIND11_VERSION_HEX >= 0x020D0000 && PYBIND11_VERSION_MAJOR < 4,
              "check these parts of pybind11 before another version is allowed; pyproject.toml names the same bounds");

/// Sets Python's error to what is being handled. pybind11 translates, so that all of the module raises the same.
PyObject* raise_caught() noexcept;

/// The new reference that `action` returns, or nullptr and Python's error set to what it threw.
template <class Action>
PyObject* guarded(Action action) noexcept {
  try {
    return never_unwound(action);
  } catch (...) {
    return raise_caught();
  }
}

/// The arguments of a METH_FASTCALL | METH_KEYWORDS function.
struct GivenArguments {
  PyObject* const* values;  // by position, then by name
  Py_ssize_t positional;
  PyObject* names;  // a tuple, or nullptr
};

struct Parameter {
  const char* name;
  PyObject** value;           // borrowed
  bool by_name_only = false;  // these come last
};

/// Puts them, by position or by name, where `expected` says; what is not given stays as it is. TypeError unless the
/// first `required` are given and nothing else is.
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

/// As PyMethodDef stores it, for METH_FASTCALL | METH_KEYWORDS.
inline PyCFunction as_method(FastMethod method) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method));
}

/// Python objects that are one `Content` each. A few that were let go are kept for the next: what is made and let go in
/// every call then allocates nothing. Guarded by the GIL.
template <class Content>
class Objects {
 public:
  /// Makes the type; `members` ends with slot 0. Only C++ makes objects, and nothing derives from it.
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
  static PyObject* make(Values&&... values) {
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
      Py_SET_REFCNT(object, 1);  // of whoever it is made for next; it keeps its reference to the type
      pool.objects[pool.kept++] = object;
      return;
    }
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
  }

#if defined(Py_GIL_DISABLED) || defined(Py_REF_DEBUG) || defined(Py_TRACE_REFS)
  static constexpr bool kKeeps = false;  // the interpreter knows more of an object than its count
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
