// Tests only: the functions of the simulated driver. They report uses that the driver's documentation leaves undefined.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/cuda/simulated_state.h"

// Names are the driver's, and handles are numbers.
// NOLINTBEGIN(readability-identifier-naming,performance-no-int-to-ptr,bugprone-macro-parentheses)

namespace pyc::cuda {
namespace {

using State = SimulatedDriver::State;

State& state() { return *simulated_state; }

#define PYC_ENTER(...) \
  if (const CUresult due = state().enter(__func__ __VA_OPT__(, ) __VA_ARGS__); due != CUDA_SUCCESS) return due

template <class Handle>
Handle new_handle() {
  return reinterpret_cast<Handle>(state().next_handle++);
}

// First in each function that a capture forbids to other threads.
#define PYC_ENTER_BESIDE_CAPTURES() \
  if (const CUresult due = state().check_captures(__func__); due != CUDA_SUCCESS) return due

int current_device() { return simulated_thread.contexts.empty() ? 0 : simulated_thread.contexts.back(); }

// ------------------------------------------------------------------------------------------------ driver and device

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return *version = 13000, CUDA_SUCCESS; }

CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                : "CUDA_ERROR_OF_SIMULATION";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) { return *text = "simulated driver", CUDA_SUCCESS; }

CUresult cuDeviceGetCount(int* count) { return *count = state().devices, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  PYC_ENTER(false);
  if (ordinal < 0 || ordinal >= state().devices) return CUDA_ERROR_INVALID_VALUE;
  return *device = ordinal, CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice) {
  std::strncpy(name, "simulated driver's device", static_cast<std::size_t>(length));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
  PYC_ENTER(false);
  const std::optional<int> known = state().attributes[attribute];
  return known ? (*value = *known, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device) + 1);
  return CUDA_SUCCESS;
}
/// Devices are connected in pairs, as on some machines.
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  PYC_ENTER(false);
  return *can = static_cast<int>(device / 2 == peer / 2), CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) { return *bytes = state().capacity, CUDA_SUCCESS; }

// ------------------------------------------------------------------------------------------------ contexts, modules

constexpr std::uintptr_t kFirstContext = 0x100;

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  PYC_ENTER(false);
  *context = reinterpret_cast<CUcontext>(kFirstContext + static_cast<std::uintptr_t>(device));
  return ++state().contexts, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  if (state().contexts-- == 0) state().misused("a context released twice");
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  simulated_thread.contexts.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - kFirstContext));
  return ++state().current, CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext*) {
  if (!simulated_thread.contexts.empty()) simulated_thread.contexts.pop_back();
  if (state().current-- == 0) state().misused("a context popped that was not pushed");
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  PYC_ENTER_BESIDE_CAPTURES();
  PYC_ENTER();
  if (image != SimulatedDriver::image()) return CUDA_ERROR_INVALID_IMAGE;
  return state().modules.insert(*module = new_handle<CUmodule>()), CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  PYC_ENTER_BESIDE_CAPTURES();
  if (state().modules.erase(module) == 0) state().misused("a module unloaded that is not loaded");
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  PYC_ENTER();
  const KernelDescription kernel = host_kernel(name);
  if (kernel.kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  return state().functions[*function = new_handle<CUfunction>()] = kernel, CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------ memory

CUresult cuMemAlloc_v2(CUdeviceptr* data, std::size_t bytes) {
  PYC_ENTER_BESIDE_CAPTURES();
  PYC_ENTER();
  if (state().used + bytes > state().capacity) return CUDA_ERROR_OUT_OF_MEMORY;
  state().used += bytes;
  const auto storage = SimulatedStorage::create(bytes);
  std::fill_n(storage->data(), std::min(bytes, State::kMostPoisoned), State::kFresh);
  State::Region& region = state().add_region(storage, false);
  region.device = current_device();
  return *data = region.base, CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr data) {
  PYC_ENTER_BESIDE_CAPTURES();
  State::Region* const region = state().region_at(data, false);
  if (region == nullptr) {
    state().misused("memory freed that is not allocated");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (state().is_touched(data)) state().misused("memory freed while work on it is queued: the driver would wait");
  if (region->storage->mappings() != 0) state().misused("memory freed while another rank has it mapped");
  state().used -= region->bytes();
  region->live = false;
  std::fill_n(region->storage->data(), std::min(region->bytes(), State::kMostPoisoned), State::kFreed);
  region->storage->free();
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** data, std::size_t bytes, unsigned) {
  PYC_ENTER_BESIDE_CAPTURES();
  PYC_ENTER();
  auto storage = std::make_unique<std::vector<std::byte>>(bytes, State::kFresh);
  std::byte* const begin = storage->data();
  state().pinned[begin] = std::move(storage);
  return *data = begin, CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* data) {
  PYC_ENTER_BESIDE_CAPTURES();
  if (state().pinned.erase(static_cast<std::byte*>(data)) == 0)
    state().misused("pinned memory freed that is not there");
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, int, CUdeviceptr data) {
  PYC_ENTER(false);
  const State::Region* const region = state().find(data, 1);
  if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return *static_cast<int*>(value) = region->device, CUDA_SUCCESS;
}

void touch(State::Work& work, std::uint64_t address, std::size_t bytes) {
  if (const State::Region* region = state().find(address, bytes)) work.regions.push_back(region->base);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  PYC_ENTER();
  if (to < State::kFirstAddress) {
    const CUresult due = state().enter("cuMemcpyAsync to the host");
    if (due != CUDA_SUCCESS) return due;
  }
  State& s = state();
  State::Work work;
  touch(work, to, bytes);
  touch(work, from, bytes);
  work.run = [&s, to, from, bytes] {
    std::byte* const into = s.translate(to, bytes, false);
    const std::byte* const source = s.translate(from, bytes, false);
    if (into == nullptr || source == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
    std::memmove(into, source, bytes);
    return CUDA_SUCCESS;
  };
  return s.queue(stream, std::move(work));
}

// ------------------------------------------------------------------------------------------------ sharing

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr data) {
  PYC_ENTER();
  const State::Region* const region = state().region_at(data, false);
  if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (region->bytes() % State::kBlock != 0) state().misused("memory shared whose block others may have a part of");
  const SimulatedStorage::Handle found = region->storage->handle();
  static_assert(sizeof found <= sizeof handle->reserved);
  std::memcpy(handle->reserved, &found, sizeof found);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* data, CUipcMemHandle handle, unsigned) {
  PYC_ENTER_BESIDE_CAPTURES();
  PYC_ENTER();
  SimulatedStorage::Handle wanted{};
  std::memcpy(&wanted, handle.reserved, sizeof wanted);
  const std::shared_ptr<SimulatedStorage> storage = SimulatedStorage::open(wanted);
  if (storage == nullptr) return CUDA_ERROR_INVALID_VALUE;
  State::Region& region = state().add_region(storage, true);
  region.device = current_device();
  return *data = region.base, CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr data) {
  PYC_ENTER_BESIDE_CAPTURES();
  const auto found = state().regions.find(data);
  if (state().region_at(data, true) == nullptr) {
    state().misused("a mapping closed that is not open");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (state().is_touched(data)) state().misused("a mapping closed while work on it is queued");
  state().regions.erase(found);  // its addresses are not reused
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------ streams, events

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  PYC_ENTER();
  return *least = 0, *greatest = State::kPriority, CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  PYC_ENTER();
  if (priority != State::kPriority) state().misused("a stream that waits for kernels of the application");
  if (flags != CU_STREAM_NON_BLOCKING) state().misused("a stream that waits for the default stream");
  state().streams[*stream = new_handle<CUstream>()] =
      std::make_unique<State::Stream>(State::Stream{.device = current_device(), .queue = {}});
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  PYC_ENTER();
  *status = state().captures.contains(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  return std::swap(*mode, simulated_thread.capture_mode), CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  state().check_context(__func__);
  const auto found = state().streams.find(stream);
  if (found == state().streams.end() || found->second->of_caller) {
    state().misused("a stream destroyed that is not the library's");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!found->second->queue.empty() && state().sticky == CUDA_SUCCESS) state().misused("a stream destroyed with work");
  return state().streams.erase(found), CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  PYC_ENTER();
  state().events[*event = new_handle<CUevent>()] =
      std::make_shared<State::Event>(State::Event{.device = current_device()});
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  state().check_context(__func__);
  if (state().events.erase(event) == 0) state().misused("an event destroyed that does not exist");
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  PYC_ENTER();
  const std::shared_ptr<State::Event> recorded = state().events.at(event);
  const State::Stream* const on = state().stream(stream);
  if (on == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (on->device != State::kAnyDevice && on->device != recorded->device) return CUDA_ERROR_INVALID_HANDLE;
  const std::uint64_t time = ++recorded->recorded;
  return state().queue(
      stream,
      {.is_ready = {}, .run = [recorded, time] { return recorded->reached = time, CUDA_SUCCESS; }, .regions = {}});
}
/// Waits for the last record before this call. Later records do not matter.
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  PYC_ENTER();
  const std::shared_ptr<State::Event> awaited = state().events.at(event);
  const std::uint64_t time = awaited->recorded;
  return state().queue(stream, {.is_ready = [awaited, time] { return awaited->reached >= time; },
                                .run = [] { return CUDA_SUCCESS; },
                                .regions = {}});
}
CUresult cuEventQuery(CUevent event) {
  PYC_ENTER_BESIDE_CAPTURES();
  PYC_ENTER(false);
  const State::Event& queried = *state().events.at(event);
  return queried.reached >= queried.recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// ------------------------------------------------------------------------------------------------ kernels

CUresult cuFuncLoad(CUfunction function) {
  PYC_ENTER();
  return state().loaded.insert(function), CUDA_SUCCESS;
}

/// Runs a kernel on the host addresses of its operands, one thread after another.
CUresult run_kernel(State& s, const KernelDescription& kernel, KernelArguments arguments, std::size_t threads) {
  for (std::uint32_t i = 0; i < arguments.inputs; ++i) {
    arguments.in[i] =
        s.translate(reinterpret_cast<std::uint64_t>(arguments.in[i]), arguments.count * kernel.in_bytes, true);
    if (arguments.in[i] == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (std::uint32_t i = 0; i < arguments.outputs; ++i) {
    arguments.out[i] =
        s.translate(reinterpret_cast<std::uint64_t>(arguments.out[i]), arguments.count * kernel.out_bytes, true);
    if (arguments.out[i] == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  for (std::size_t thread = 0; thread < threads; ++thread) kernel.kernel(arguments, thread, threads);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned, unsigned, unsigned block_x, unsigned, unsigned,
                        unsigned, CUstream stream, void** parameters, void**) {
  PYC_ENTER();
  State& s = state();
  const KernelDescription kernel = s.functions.at(function);
  if (!s.loaded.contains(function)) s.misused("a launch that loads its kernel first, which may wait");
  const KernelArguments arguments = *static_cast<const KernelArguments*>(parameters[0]);
  const std::size_t threads = std::size_t{grid_x} * block_x;
  State::Work work;
  for (std::uint32_t i = 0; i < arguments.inputs; ++i) {
    touch(work, reinterpret_cast<std::uint64_t>(arguments.in[i]), arguments.count * kernel.in_bytes);
  }
  for (std::uint32_t i = 0; i < arguments.outputs; ++i) {
    touch(work, reinterpret_cast<std::uint64_t>(arguments.out[i]), arguments.count * kernel.out_bytes);
  }
  work.run = [&s, kernel, arguments, threads] { return run_kernel(s, kernel, arguments, threads); };
  return s.queue(stream, std::move(work));
}

#undef PYC_ENTER_BESIDE_CAPTURES
#undef PYC_ENTER

/// Makes a function of the driver callable from any thread.
template <auto kFunction>
struct Locked;
template <class... Arguments, CUresult (*kFunction)(Arguments...)>
struct Locked<kFunction> {
  static CUresult call(Arguments... arguments) {
    const std::lock_guard lock(simulated_mutex);
    if (simulated_state == nullptr) return CUDA_ERROR_DEINITIALIZED;
    return kFunction(arguments...);
  }
};

}  // namespace

const DriverApi kSimulatedApi = {
#define PYC_ENTRY(name, parameters) .name = &Locked<&name>::call,
    PYC_DRIVER_FUNCTIONS(PYC_ENTRY) PYC_OPTIONAL_DRIVER_FUNCTIONS(PYC_ENTRY)
#undef PYC_ENTRY
};

}  // namespace pyc::cuda

// NOLINTEND(readability-identifier-naming,performance-no-int-to-ptr,bugprone-macro-parentheses)
