#include "memory/cuda/devices_in_use.h"

#include <map>
#include <mutex>
#include <stdexcept>

#include "memory/cuda/capture.h"
#include "memory/cuda/cuda_executor.h"
#include "memory/cuda/device_code.h"

namespace pyc::cuda {
namespace {

struct Use {
  std::mutex mutex;
  const DriverApi* simulated = nullptr;
  const void* image = nullptr;
  std::map<int, std::shared_ptr<Executor>> executors;
};

/// Never destroyed: the driver may be gone at the end of the process.
Use& use() {
  static Use& one = *new Use;
  return one;
}

Availability found() {
  const Use& u = use();
  Availability found = availability(u.simulated != nullptr ? DriverFinding{u.simulated, ""} : system_driver());
  found.kernels = u.simulated != nullptr ? "of the host, by the simulated driver" : kOriginOfDeviceCode;
  return found;
}

const DriverApi& driver() {
  const Use& u = use();
  if (u.simulated != nullptr) return *u.simulated;
  const DriverFinding& finding = system_driver();
  if (finding.driver == nullptr) throw std::runtime_error("CUDA is off: " + finding.reason);
  return *finding.driver;
}

std::shared_ptr<Executor> make(int ordinal) {
  const Use& u = use();
  if (u.simulated != nullptr) return make_executor(*u.simulated, ordinal, u.image);
  return make_executor_with_code(driver(), ordinal);
}

}  // namespace

Availability availability_in_use() {
  const std::lock_guard lock(use().mutex);
  return found();
}

std::shared_ptr<Executor> executor_in_use(int ordinal) {
  const std::lock_guard lock(use().mutex);
  std::shared_ptr<Executor>& executor = use().executors[ordinal];
  if (executor) return executor;
  const Availability available = found();
  if (available.has_failed) throw DeviceError(available.reason);
  if (!available.reason.empty()) throw std::runtime_error("CUDA is off: " + available.reason);
  return executor = make(ordinal);
}

std::optional<int> device_of(const std::byte* data) {
  const std::lock_guard lock(use().mutex);
  const BesideCaptures beside_captures(driver());
  int ordinal = 0;
  const CUresult result = driver().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                                         reinterpret_cast<CUdeviceptr>(data));
  if (result == CUDA_ERROR_INVALID_VALUE) return std::nullopt;
  check(driver(), result, "cuPointerGetAttribute");
  return ordinal;
}

void use_driver(const DriverApi* driver, const void* image) {
  const std::lock_guard lock(use().mutex);
  use().executors.clear();
  use().simulated = driver;
  use().image = image;
}

}  // namespace pyc::cuda
