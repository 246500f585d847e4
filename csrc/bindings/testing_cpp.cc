// C++ tests (tests/cpp) of classes without a binding, run by pytest.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings/testing.h"
#include "cpp_test.h"

namespace pyc {

namespace py = pybind11;

void bind_testing_cpp(py::module_& t) {
  t.def("cpp_tests", [] {
    std::vector<std::string> names;
    for (const auto& [name, run] : test::all()) names.push_back(name);
    return names;
  });
  t.def(
      "run_cpp_test", [](const std::string& name) { test::all().at(name)(); }, py::arg("name"),
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace pyc
