// In _testing: the simulated driver, and the CUDA parts of the build.
#include "bindings/bindings.h"
#include "bindings/testing.h"

#if defined(PYC_WITH_CUDA)
#include <stdexcept>

#include "memory/cuda/availability.h"
#include "memory/cuda/cuda_executor.h"
#include "memory/cuda/device_code.h"
#include "memory/cuda/devices_in_use.h"
#include "memory/cuda/driver.h"
#include "memory/cuda/kernel_names.h"
#include "memory/cuda/simulated_driver.h"
#include "services/partial_allreduce/board_buffers.h"

namespace pyc {
namespace {

using cuda::SimulatedDriver;

const std::byte* place(std::uintptr_t address) {
  return reinterpret_cast<const std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// The function of _core. This module has its own copy of the library.
auto use_driver_in_core() {
  const auto function = py::module_::import("pycollectives._core").attr("_use_driver").cast<py::capsule>();
  return reinterpret_cast<decltype(&cuda::use_driver)>(function.get_pointer());
}

std::unique_ptr<Executor> executor_of_device(int ordinal) {
  const cuda::DriverFinding& finding = cuda::system_driver();
  const cuda::Availability found = cuda::availability(finding);
  if (!found.reason.empty()) throw std::runtime_error("CUDA is off: " + found.reason);
  return cuda::make_executor_with_code(*finding.driver, ordinal);
}

std::string why_not(const std::string& library) {
  static cuda::DriverApi api;
  return cuda::load_driver(library.c_str(), api).reason;
}

/// The arenas of the buffers that a board of ranks on devices takes, in that order.
std::vector<std::size_t> arenas_of_buffers(std::size_t ranks) {
  BoardShape shape;
  shape.ranks.resize(ranks);
  shape.count = 1;
  shape.elements = elements_of(DataType::kFloat32, ReduceOp::kSum);
  shape.on_device = true;
  BoardMemory counted(nullptr, false);
  BoardBuffers(counted, shape);
  std::vector<std::uint64_t> memory(counted.used() / sizeof(std::uint64_t) + 1);
  BoardMemory shared(reinterpret_cast<std::byte*>(memory.data()), true);
  BoardBuffers buffers(shared, shape);
  std::vector<std::size_t> arenas;
  for (std::size_t i = 0; i < BoardBuffers::count(shape); ++i) {
    arenas.push_back(static_cast<std::size_t>(buffers.take()) / BoardBuffers::per_arena(shape, ranks));
  }
  return arenas;
}

void bind_simulated_driver(py::module_& t) {
  using D = SimulatedDriver;
  py::class_<D>(t, "SimulatedDriver")
      .def(py::init<std::uint64_t, std::size_t, int>(), py::arg("seed"), py::kw_only(),
           py::arg("capacity") = std::size_t{1} << 30U, py::arg("devices") = 1)
      .def(
          "executor", [](const D& d, int ordinal) { return cuda::make_executor(d.api(), ordinal, D::image()); },
          py::arg("ordinal") = 0, py::keep_alive<0, 1>())
      .def(
          "executor_with_code", [](const D& d) { return cuda::make_executor_with_code(d.api(), 0); },
          py::keep_alive<0, 1>())
      .def("use", [](const D& d) { use_driver_in_core()(&d.api(), D::image()); })
      .def_static("use_no_more", [] { use_driver_in_core()(nullptr, nullptr); })
      .def("availability",
           [](const D& d) {
             const cuda::Availability found = cuda::availability({&d.api(), ""});
             return py::make_tuple(found.reason, found.devices.size());
           })
      .def("fail", &D::fail, py::arg("function"), py::arg("nth"), py::arg("error"))
      .def("set_attribute", &D::set_attribute, py::arg("attribute"), py::arg("value"))
      .def("fault", &D::fault, py::arg("nth"))
      .def("stream_of_caller", &D::stream_of_caller, py::arg("device") = 0)
      .def("begin_capture", &D::begin_capture, py::arg("stream"))
      .def("end_capture", &D::end_capture, py::arg("stream"))
      .def("produce",
           [](D& d, std::uintptr_t stream, std::uintptr_t to, const std::string& bytes) {
             const auto* const begin = reinterpret_cast<const std::byte*>(bytes.data());
             d.produce(stream, place(to), {begin, begin + bytes.size()});
           })
      .def("hold", &D::hold, py::arg("stream"))
      .def("let_go", &D::let_go, py::arg("stream"))
      .def("step", &D::step)
      .def("finish", &D::finish)
      .def("read",
           [](const D& d, std::uintptr_t from, std::size_t count) {
             const std::vector<std::byte> found = d.read(place(from), count);
             return py::bytes(reinterpret_cast<const char*>(found.data()), found.size());
           })
      .def_property_readonly("steps", &D::steps)
      .def("problems", &D::problems, py::arg("end") = true);
}

}  // namespace

void bind_testing_cuda(py::module_& t) {
  bind_simulated_driver(t);
  t.def("device_executor", &executor_of_device, py::arg("ordinal") = 0);
  t.def("why_no_driver", &why_not, py::arg("library"));
  t.def("arenas_of_buffers", &arenas_of_buffers, py::arg("ranks"));
  t.def("kernel_names", [] {
    const auto names = cuda::kernel_names();
    return std::vector<std::string>(names.begin(), names.end());
  });
  t.def("device_code", &cuda::device_code);
}

}  // namespace pyc
#else
void pyc::bind_testing_cuda(pybind11::module_&) {}
#endif
