// The extension module pycollectives._core.
#include <mpi.h>

#include <array>

#include "bindings/bindings.h"
#include "core/error.h"

namespace pyc {
namespace {

/// Python classes of the package's own errors, which need no extension to be imported and caught.
void raise(const char* name, const char* text) {
  py::gil_scoped_acquire gil;
  const py::object type = py::module_::import("pycollectives.errors").attr(name);
  PyErr_SetString(type.ptr(), text);
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const ScheduleError& e) {
    raise("ScheduleError", e.what());
  } catch (const TransportError& e) {
    raise("TransportError", e.what());
  } catch (const RankFailedError& e) {
    raise("RankFailedError", e.what());
  } catch (const StallError& e) {
    raise("StallError", e.what());
  } catch (const ClosedError& e) {
    raise("ClosedError", e.what());
  }
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace
}  // namespace pyc

PYBIND11_MODULE(_core, m) {
  m.attr("__version__") = PYC_VERSION;
  m.attr("interface") = PYC_INTERFACE;
  pybind11::register_exception_translator(&pyc::translate);
  m.def("mpi_library_version", &pyc::mpi_library_version);
  pyc::bind_schedule(m);
  pyc::bind_engine(m);
  pyc::bind_partial_allreduce(m);
  pyc::bind_simulation(m);
  pyc::bind_testing(m);
}
