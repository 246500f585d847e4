// Whether CUDA devices are usable, and the device of an array.
#include <cstdint>
#include <stdexcept>

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "bindings/devices.h"

#if defined(PYC_WITH_CUDA)
#include "memory/cuda/devices_in_use.h"
#endif

namespace pyc {
namespace {

constexpr auto kBuiltWithout = "it was built with PYC_CUDA=OFF";

py::dict cuda_availability() {
  using namespace py::literals;
#if defined(PYC_WITH_CUDA)
  const cuda::Availability found = without_gil(cuda::availability_in_use);
  py::list devices;
  for (const cuda::DeviceDescription& device : found.devices) {
    const auto capability = std::to_string(device.major) + "." + std::to_string(device.minor);
    devices.append(py::dict("name"_a = device.name, "capability"_a = capability, "bytes"_a = device.bytes,
                            "pci_bus_id"_a = device.pci_bus_id, "why_not_shared"_a = device.why_not_shared,
                            "one_process_at_a_time"_a = device.one_process_at_a_time, "reaches"_a = device.reaches));
  }
  return py::dict("reason"_a = found.reason, "has_failed"_a = found.has_failed,
                  "driver_version"_a = found.driver_version, "kernels"_a = found.kernels, "devices"_a = devices);
#else
  return py::dict("reason"_a = kBuiltWithout, "has_failed"_a = false, "driver_version"_a = 0, "kernels"_a = "",
                  "devices"_a = py::list());
#endif
}

}  // namespace

std::optional<int> device_of([[maybe_unused]] std::uintptr_t data) {
#if defined(PYC_WITH_CUDA)
  return cuda::device_of(reinterpret_cast<const std::byte*>(data));  // NOLINT(performance-no-int-to-ptr)
#else
  return std::nullopt;
#endif
}

std::shared_ptr<Executor> executor_in_use([[maybe_unused]] int ordinal) {
#if defined(PYC_WITH_CUDA)
  return cuda::executor_in_use(ordinal);
#else
  throw std::runtime_error(std::string("CUDA is off: ") + kBuiltWithout);
#endif
}

void bind_cuda(py::module_& m) {
  Definitions(m)
      .function<&cuda_availability>("cuda_availability", "")
      .function("device_of", "data", kWithoutGil<&device_of>);
#if defined(PYC_WITH_CUDA)
  m.attr("_use_driver") = py::capsule(reinterpret_cast<void*>(&cuda::use_driver));
#endif
}

}  // namespace pyc
