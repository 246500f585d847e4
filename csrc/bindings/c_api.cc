#include "bindings/c_api.h"

namespace pyc {

PyObject* raise_caught() noexcept {
  const std::exception_ptr error = std::current_exception();
  try {
    const py::cpp_function raise([&error] { std::rethrow_exception(error); });
    return never_unwound([&raise] { return PyObject_CallNoArgs(raise.ptr()); });
  } catch (...) {
    return PyErr_NoMemory();
  }
}

void take_arguments(const char* function, const GivenArguments& given, const Parameter* expected, std::size_t count,
                    std::size_t required) {
  const auto positional = static_cast<std::size_t>(given.positional);
  const std::size_t named = given.names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(given.names));
  const auto refuse = [&](const std::string& why) { throw py::type_error(std::string(function) + "() " + why); };
  std::size_t most = count;
  while (most > 0 && expected[most - 1].by_name_only) --most;
  if (positional > most) {
    refuse("takes at most " + std::to_string(most) + " arguments, " + std::to_string(positional) + " were given");
  }
  for (std::size_t i = 0; i < positional; ++i) *expected[i].value = given.values[i];
  for (std::size_t n = 0; n < named; ++n) {
    PyObject* const name = PyTuple_GET_ITEM(given.names, static_cast<Py_ssize_t>(n));
    std::size_t i = 0;
    while (i < count && PyUnicode_CompareWithASCIIString(name, expected[i].name) != 0) ++i;
    if (i == count) refuse("got an unexpected argument " + py::repr(name).cast<std::string>());
    if (i < positional) refuse(std::string("got two values for '") + expected[i].name + "'");
    *expected[i].value = given.values[positional + n];
  }
  for (std::size_t i = positional; i < required; ++i) {
    if (*expected[i].value == nullptr) refuse(std::string("needs the argument '") + expected[i].name + "'");
  }
}

}  // namespace pyc
