#include "memory/cuda/device_description.h"

namespace pyc::cuda {
namespace {

int attribute_of(const DriverApi& driver, CUdevice device, int attribute) {
  int value = 0;
  PYC_CUDA(driver, cuDeviceGetAttribute, &value, attribute, device);
  return value;
}

/// The driver's documentation tests CUDA IPC by the event attribute. Drivers before CUDA 12 do not know it, and
/// integrated devices may have it without sharing memory.
std::string why_not_shared(const DriverApi& driver, CUdevice device) {
  if (attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 0) return "no unified addressing";
  if (attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_INTEGRATED) != 0) return "integrated device";
  int events = 0;
  const CUresult known = driver.cuDeviceGetAttribute(&events, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, device);
  if (known == CUDA_ERROR_INVALID_VALUE) return "";
  check(driver, known, "cuDeviceGetAttribute");
  return events == 0 ? "not supported by the device" : "";
}

std::vector<bool> reached_from(const DriverApi& driver, const std::vector<CUdevice>& devices, CUdevice device) {
  std::vector<bool> reaches;
  for (const CUdevice other : devices) {
    int can = 1;
    if (other != device) PYC_CUDA(driver, cuDeviceCanAccessPeer, &can, device, other);
    reaches.push_back(can != 0);
  }
  return reaches;
}

DeviceDescription describe(const DriverApi& driver, CUdevice device) {
  constexpr int kLongest = 256;
  char name[kLongest] = {};
  char bus[kLongest] = {};
  DeviceDescription found;
  PYC_CUDA(driver, cuDeviceGetName, name, kLongest - 1, device);
  PYC_CUDA(driver, cuDeviceGetPCIBusId, bus, kLongest - 1, device);
  PYC_CUDA(driver, cuDeviceTotalMem_v2, &found.bytes, device);
  found.name = name;
  found.pci_bus_id = bus;
  found.major = attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  found.minor = attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  found.why_not_shared = why_not_shared(driver, device);
  const int mode = attribute_of(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  found.one_process_at_a_time = mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
  return found;
}

}  // namespace

std::vector<DeviceDescription> describe_devices(const DriverApi& driver) {
  int count = 0;
  PYC_CUDA(driver, cuDeviceGetCount, &count);
  std::vector<CUdevice> devices(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    PYC_CUDA(driver, cuDeviceGet, &devices[static_cast<std::size_t>(ordinal)], ordinal);
  }
  std::vector<DeviceDescription> found;
  for (const CUdevice device : devices) {
    found.push_back(describe(driver, device));
    found.back().reaches = reached_from(driver, devices, device);
  }
  return found;
}

}  // namespace pyc::cuda
