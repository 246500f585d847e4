// The extension module pycollectives._core.
#include "bindings/bindings.h"
#include "core/error.h"
#include "diagnostics/flight_dump.h"

namespace pyc {
namespace {

/// Raises one of the package's own errors. Their Python classes can be imported without this extension.
void raise(const char* name, const char* text) {
  GilHeld gil;
  const py::object type = py::module_::import("pycollectives.support.errors").attr(name);
  PyErr_SetString(type.ptr(), text);
}

void raise_rank_failed(const RankFailedError& error) {
  GilHeld gil;
  const py::object type = py::module_::import("pycollectives.support.errors").attr("RankFailedError");
  PyErr_SetObject(type.ptr(), type(error.what(), error.ranks()).ptr());
}

/// Adds the flight records of this process, which are also written to a file if PYC_DUMP_DIR is set.
void raise_stall(const char* what) {
  GilHeld gil;
  FlightDump& dump = FlightDump::instance();
  const std::string record = dump.document("StallError");
  std::string text = what;
  if (dump.has_directory()) {
    try {
      text += " (flight record: " + dump.write(record) + ")";
    } catch (const std::exception& error) {
      text += std::string(" (no flight record: ") + error.what() + ")";
    }
  }
  const py::object type = py::module_::import("pycollectives.support.errors").attr("StallError");
  const py::object error = type(text);
  error.attr("_record") = record;
  PyErr_SetObject(type.ptr(), error.ptr());
}

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const ScheduleError& e) {
    raise("ScheduleError", e.what());
  } catch (const TransportError& e) {
    raise("TransportError", e.what());
  } catch (const MismatchError& e) {
    raise("MismatchError", e.what());
  } catch (const RankFailedError& e) {
    raise_rank_failed(e);
  } catch (const StallError& e) {
    raise_stall(e.what());
  } catch (const ClosedError& e) {
    raise("ClosedError", e.what());
  }
}

}  // namespace
}  // namespace pyc

PYBIND11_MODULE(_core, m) {
  m.attr("__version__") = PYC_VERSION;
  m.attr("interface") = pyc::kInterface;
  pybind11::register_exception_translator(&pyc::translate);
  pyc::bind_c_functions(m);
  pyc::bind_groups(m);
  pyc::bind_schedule(m);
  pyc::bind_engine(m);
  pyc::bind_partial_allreduce(m);
  pyc::bind_device_allreduce(m);
  pyc::bind_partial_reduce(m);
  pyc::bind_device_partial_reduce(m);
  pyc::bind_pairwise_averaging(m);
  pyc::bind_device_pairwise(m);
  pyc::bind_neighborhood(m);
  pyc::bind_hop(m);
  pyc::bind_hop_queues(m);
  pyc::bind_counter(m);
  pyc::bind_costs(m);
  pyc::bind_simulation(m);
  pyc::bind_parameter_server(m);
  pyc::bind_parameter_server_simulation(m);
  pyc::bind_cuda(m);
}
