// Whether CUDA devices can be used.
#include "bindings/bindings.h"

#if defined(PYC_WITH_CUDA)
#include "memory/cuda/availability.h"
#include "memory/cuda/device_code.h"
#endif

namespace pyc {
namespace {

py::dict cuda_availability() {
  using namespace py::literals;
#if defined(PYC_WITH_CUDA)
  const cuda::Availability found = [] {
    const GilReleased released;
    return cuda::availability(cuda::system_driver(), cuda::why_no_device_code());
  }();
  py::list devices;
  for (const cuda::DeviceDescription& device : found.devices) {
    const auto capability = std::to_string(device.major) + "." + std::to_string(device.minor);
    devices.append(py::dict("name"_a = device.name, "capability"_a = capability, "bytes"_a = device.bytes));
  }
  return py::dict("reason"_a = found.reason, "driver_version"_a = found.driver_version, "devices"_a = devices);
#else
  return py::dict("reason"_a = "it was built with PYC_CUDA=OFF", "driver_version"_a = 0, "devices"_a = py::list());
#endif
}

}  // namespace

void bind_cuda(py::module_& m) { m.def("cuda_availability", &cuda_availability); }

}  // namespace pyc
