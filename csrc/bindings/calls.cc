#include "bindings/calls.h"

#include <pybind11/eval.h>

#include <memory>
#include <utility>

#include "core/error.h"

namespace pyc {

Signature::Signature(std::string function, const std::string& parameters, std::size_t count)
    : name(std::move(function)) {
  const py::object read = py::eval("lambda " + parameters + ": None", py::dict());
  const py::object code = read.attr("__code__"), by_place = read.attr("__defaults__"),
                   by_name = read.attr("__kwdefaults__");
  by_position = code.attr("co_argcount").cast<std::size_t>();
  takes_rest = (code.attr("co_flags").cast<int>() & CO_VARKEYWORDS) != 0;
  const std::size_t all = by_position + code.attr("co_kwonlyargcount").cast<std::size_t>();
  if (all + takes_rest != count || count > kMost) {
    throw InternalError(name + ": expected " + std::to_string(count) + " parameters, got " + parameters);
  }
  for (const py::handle given : py::tuple(code.attr("co_varnames"))) {
    if (names.size() < all + takes_rest) names.push_back(py::reinterpret_borrow<py::object>(given));
  }
  defaults.resize(all);
  if (!by_place.is_none()) {
    const auto last = py::tuple(by_place);
    for (std::size_t i = 0; i < last.size(); ++i) defaults[by_position - last.size() + i] = last[i];
  }
  if (by_name.is_none()) return;
  for (std::size_t i = by_position; i < all; ++i) {
    if (by_name.contains(names[i])) defaults[i] = by_name[names[i]];
  }
}

Values::Values(const Signature& signature, py::handle positional, py::handle named) : signature_(signature) {
  const auto refuse = [&](const std::string& why) { throw py::type_error(signature.name + "() " + why); };
  const auto given = static_cast<std::size_t>(PyTuple_GET_SIZE(positional.ptr()));
  if (given > signature.by_position) {
    refuse("takes at most " + std::to_string(signature.by_position) + " arguments by position, got " +
           std::to_string(given));
  }
  const std::size_t with_name = signature.names.size() - (signature.takes_rest ? 1 : 0);
  Py_ssize_t by_name = 0;
  for (std::size_t i = 0; i < with_name; ++i) {
    const py::handle name = signature.names[i];
    py::handle value = PyDict_GetItem(named.ptr(), name.ptr());
    if (value) ++by_name;
    if (i < given) {
      if (value) refuse("got two values for '" + name.cast<std::string>() + "'");
      value = PyTuple_GET_ITEM(positional.ptr(), static_cast<Py_ssize_t>(i));
    }
    if (!value) value = signature.defaults[i];
    if (!value) refuse("needs the argument '" + name.cast<std::string>() + "'");
    values_[i] = value;
  }
  if (!signature.takes_rest && by_name == PyDict_GET_SIZE(named.ptr())) return;
  py::dict rest;
  for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(named)) {
    bool is_parameter = false;
    for (std::size_t i = 0; i < with_name; ++i) is_parameter = is_parameter || signature.names[i].equal(name);
    if (is_parameter) continue;
    if (!signature.takes_rest) refuse("got an unexpected argument " + py::repr(name).cast<std::string>());
    rest[name] = value;
  }
  rest_ = std::move(rest);
  values_[with_name] = rest_;
}

void Values::refuse(std::size_t i) const {
  throw py::type_error(signature_.name + "() cannot take " + py::repr(values_[i]).cast<std::string>() + " as '" +
                       signature_.names[i].cast<std::string>() + "'");
}

namespace {

/// Lives as long as the function, which Python may free after it has been finalized.
std::shared_ptr<const Signature> signature_of(std::string name, const std::string& parameters, std::size_t count) {
  return {new Signature(std::move(name), parameters, count), [](const Signature* signature) {
            if (Py_IsInitialized() != 0) delete signature;
          }};
}

std::string with_self(const std::string& parameters) { return parameters.empty() ? "self" : "self, " + parameters; }

}  // namespace

void Definitions::add_function(const char* name, const std::string& parameters, Described function) {
  const auto signature = signature_of(name, parameters, function.parameters);
  const py::cpp_function made(
      [signature, run = function.run](const py::args& positional, const py::kwargs& named) {
        return run(Values(*signature, positional, named));
      },
      py::name(name), py::scope(scope_));
  const bool in_class = PyType_Check(scope_.ptr()) != 0;
  scope_.attr(name) = in_class ? py::object(py::staticmethod(made)) : py::object(made);
}

void Definitions::add_method(const char* name, const std::string& parameters, Described function) {
  const auto signature = signature_of(name, with_self(parameters), function.parameters);
  scope_.attr(name) = py::cpp_function(
      [signature, run = function.run](const py::args& positional, const py::kwargs& named) {
        return run(Values(*signature, positional, named));
      },
      py::name(name), py::is_method(scope_));
}

void Definitions::add_property(const char* name, Described function) {
  const auto signature = signature_of(name, "self", function.parameters);
  const py::cpp_function getter([signature, run = function.run](const py::args& self, const py::kwargs& none) {
    return run(Values(*signature, self, none));
  });
  scope_.attr(name) = py::handle(reinterpret_cast<PyObject*>(&PyProperty_Type))(getter);
}

void Definitions::add_constructor(const std::string& parameters, Constructor constructor) {
  const auto signature = signature_of(scope_.attr("__name__").cast<std::string>(), parameters, constructor.parameters);
  scope_.attr("__init__") =
      py::cpp_function([signature, construct = constructor.construct](
                           py::detail::value_and_holder& place, const py::args& positional,
                           const py::kwargs& named) { construct(place, Values(*signature, positional, named)); },
                       py::name("__init__"), py::is_method(scope_), py::detail::is_new_style_constructor());
}

}  // namespace pyc
