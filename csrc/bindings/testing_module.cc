// The extension module pycollectives._testing, for tests only: single parts of the library, the checker of plans,
// simulations of scripted ranks, and a simulated device. It has its own copy of the library. It shares the Python
// classes of _core, so its functions take engines and plans from _core.
#include "bindings/bindings.h"
#include "bindings/testing.h"

PYBIND11_MODULE(_testing, t) {
  const pybind11::object core = pybind11::module_::import("pycollectives.support.native").attr("core");
  if (core.attr("interface").cast<std::string>() != pyc::kInterface) {
    throw pybind11::import_error("pycollectives._testing was built with another _core: run `make testing`");
  }
  pyc::bind_testing(t);
  pyc::bind_testing_abort(t);
  pyc::bind_testing_cpp(t);
  pyc::bind_testing_hop(t);
  pyc::bind_testing_plans(t);
  pyc::bind_testing_simulations(t);
  pyc::bind_testing_executors(t);
  pyc::bind_testing_cuda(t);
}
