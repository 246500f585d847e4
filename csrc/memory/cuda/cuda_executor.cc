#include "memory/cuda/cuda_executor.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/checked.h"
#include "core/error.h"
#include "memory/cuda/context.h"
#include "memory/cuda/kernel_arguments.h"
#include "memory/cuda/kernel_names.h"

namespace pyc::cuda {
namespace {

constexpr std::size_t kVector = 16;  // bytes that a thread moves at a time
constexpr unsigned kBlocksPerMultiprocessor = 8;
constexpr std::size_t kDriverBlock = std::size_t{2} << 20U;  // smaller allocations may share one

constexpr char kWhyNotOpened[] =
    "; each rank must see the devices of all ranks of its node (SLURM: ask for them per node, not per task), and "
    "containers must share one IPC and one PID namespace";

CUdeviceptr address(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }
// NOLINTNEXTLINE(performance-no-int-to-ptr): addresses are numbers to the driver
std::byte* pointer(CUdeviceptr data) { return reinterpret_cast<std::byte*>(data); }

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const Context& context) : context_(context) {
    const Context::Current current(context_);
    PYC_CUDA(context_.driver(), cuEventCreate, &event_, CU_EVENT_DISABLE_TIMING);
  }
  ~CudaEvent() override {
    context_.end([&] { context_.driver().cuEventDestroy_v2(event_); });
  }

  bool reached() override {
    const BesideCaptures beside_captures(context_.driver());
    const CUresult result = context_.driver().cuEventQuery(event_);
    if (result == CUDA_ERROR_NOT_READY) return false;
    check(context_.driver(), result, "cuEventQuery");
    return true;
  }
  CUevent handle() const { return event_; }

 private:
  const Context& context_;
  CUevent event_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(const Context& context) : context_(context), owned_(true) {
    const Context::Current current(context_);
    PYC_CUDA(driver(), cuStreamCreateWithPriority, &stream_, CU_STREAM_NON_BLOCKING, context_.stream_priority());
  }
  CudaStream(const Context& context, CUstream callers) : context_(context), owned_(false), stream_(callers) {}
  ~CudaStream() override {
    if (!owned_) return;
    context_.end([&] { driver().cuStreamDestroy_v2(stream_); });
  }

  void wait(Event& event) override {
    const Context::Current current(context_);
    PYC_CUDA(driver(), cuStreamWaitEvent, stream_, event_handle(event), 0);
  }
  void record(Event& event) override {
    const Context::Current current(context_);
    if (!owned_) check_not_captured();
    const CUresult result = driver().cuEventRecord(event_handle(event), stream_);
    if (!owned_) check_callers(result);
    check(driver(), result, "cuEventRecord");
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0 || to == from) return;
    const Context::Current current(context_);
    PYC_CUDA(driver(), cuMemcpyAsync, address(to), address(from), bytes, stream_);
  }

  void fold(Elements elements, ReduceOp op, Outputs outputs, Inputs inputs, std::size_t count,
            std::size_t divisor) override {
    const KernelElements parts = kernel_elements(elements.type);
    const bool in_parts = parts.per_element == 1 || op == ReduceOp::kSum || op == ReduceOp::kAvg;
    auto* const kernel = in_parts ? context_.fold(op, parts.type, divisor != 1) : nullptr;
    if (kernel == nullptr) {
      const std::string what = std::string(name_of(op)) + (divisor == 1 ? "" : " with a divisor");
      throw std::invalid_argument("CUDA: expected SUM, PROD, MIN, MAX or AVG of numbers, got " + what + " of " +
                                  std::string(name_of(elements.type)));
    }
    launch(kernel, parts.type, outputs, inputs, {}, count * parts.per_element, divisor);
  }

  void weighted_sum(DataType type, Outputs outputs, Inputs inputs, std::span<const double> factors,
                    std::size_t count) override {
    auto* const kernel = context_.weighted_sum(type);
    if (kernel == nullptr) {
      throw std::invalid_argument("CUDA: expected a weighted sum of floats, got " + std::string(name_of(type)));
    }
    launch(kernel, type, outputs, inputs, factors, count, 1);
  }

  void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) override {
    if (!elements.widened()) return copy(into, from, count * size_of(elements.type));
    launch(context_.load(elements.type), elements.type, {&into, 1}, {&from, 1}, {}, count, 1);
  }

  void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
             std::size_t divisor) override {
    if (elements.widened()) {
      return launch(context_.store(elements.type), elements.type, {&into, 1}, {&from, 1}, {}, count, divisor);
    }
    if (divisor == 1) return copy(into, from, count * size_of(elements.type));
    fold(elements, ReduceOp::kAvg, {&into, 1}, {&from, 1}, count, divisor);
  }

 private:
  const DriverApi& driver() const { return context_.driver(); }

  // For the caller's stream: an error of the caller is not a failure of the device.

  void check_not_captured() const {
    int status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = driver().cuStreamIsCapturing(stream_, &status);
    check_callers(status == CU_STREAM_CAPTURE_STATUS_NONE ? result : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    check(driver(), result, "cuStreamIsCapturing");
  }
  static void check_callers(CUresult result) {
    if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_CAPTURED_EVENT) {
      throw std::invalid_argument(
          "stream: expected one that works, got one that is being captured into a CUDA graph: a collective cannot be "
          "part of a graph, call it outside of the capture");
    }
    if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_CONTEXT ||
        result == CUDA_ERROR_CONTEXT_IS_DESTROYED) {
      throw std::invalid_argument(
          "stream: expected a stream of the device that the collective is on, got one of another device, or one that "
          "was destroyed");
    }
  }

  static CUevent event_handle(Event& event) { return dynamic_cast<CudaEvent&>(event).handle(); }

  void launch(CUfunction kernel, DataType type, Outputs outputs, Inputs inputs, std::span<const double> factors,
              std::size_t count, std::size_t divisor) {
    if (kernel == nullptr) throw InternalError("CUDA: no kernel converts " + std::string(name_of(type)));
    if (std::max(outputs.size(), inputs.size()) > kMostOperands) {
      throw std::length_error("CUDA: expected at most " + std::to_string(kMostOperands) +
                              " operands of a kernel, got " + std::to_string(std::max(outputs.size(), inputs.size())));
    }
    if (count == 0) return;
    KernelArguments arguments{};
    std::copy(inputs.begin(), inputs.end(), arguments.in);
    std::copy(outputs.begin(), outputs.end(), arguments.out);
    std::copy(factors.begin(), factors.end(), arguments.factor);
    arguments.count = count;
    arguments.divisor = divisor;
    arguments.inputs = static_cast<std::uint32_t>(inputs.size());
    arguments.outputs = static_cast<std::uint32_t>(outputs.size());
    const auto is_aligned = [](const std::byte* data) { return address(data) % kVector == 0; };
    arguments.aligned = std::all_of(inputs.begin(), inputs.end(), is_aligned) &&
                        std::all_of(outputs.begin(), outputs.end(), is_aligned);
    void* parameters[] = {&arguments};
    const Context::Current current(context_);
    PYC_CUDA(driver(), cuLaunchKernel, kernel, blocks(count * size_of(type)), 1, 1, kBlockThreads, 1, 1, 0, stream_,
             parameters, nullptr);
  }

  /// Enough blocks to keep the device busy. In a smaller grid, each thread loops.
  unsigned blocks(std::size_t bytes) const {
    const std::size_t wanted = (bytes + kVector * kBlockThreads - 1) / (kVector * kBlockThreads);
    const std::size_t most = std::size_t{context_.multiprocessors()} * kBlocksPerMultiprocessor;
    return static_cast<unsigned>(std::clamp<std::size_t>(wanted, 1, most));
  }

  const Context& context_;
  const bool owned_;
  CUstream stream_ = nullptr;
};

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(const DriverApi& driver, int ordinal, const void* image) : context_(driver, ordinal, image) {}

  std::string_view kind() const override { return "cuda"; }

  ExecutorMemory allocate(std::size_t bytes) override {
    const Context::Current current(context_);
    CUdeviceptr data = 0;
    PYC_CUDA(context_.driver(), cuMemAlloc_v2, &data, std::max<std::size_t>(bytes, 1));
    return owned(pointer(data));
  }
  ExecutorMemory allocate_shared(std::size_t bytes) override {
    const std::size_t blocks = std::max<std::size_t>(bytes / kDriverBlock + (bytes % kDriverBlock != 0 ? 1 : 0), 1);
    return allocate(checked_product(blocks, kDriverBlock));
  }
  ExecutorMemory allocate_staging(std::size_t bytes) override {
    const Context::Current current(context_);
    void* data = nullptr;
    PYC_CUDA(context_.driver(), cuMemHostAlloc, &data, std::max<std::size_t>(bytes, 1), CU_MEMHOSTALLOC_PORTABLE);
    return owned_staging(static_cast<std::byte*>(data));
  }

  std::unique_ptr<Stream> new_stream() override { return std::make_unique<CudaStream>(context_); }
  std::unique_ptr<Event> new_event() override { return std::make_unique<CudaEvent>(context_); }
  std::unique_ptr<Stream> stream_of_caller(std::uintptr_t handle) override {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    return std::make_unique<CudaStream>(context_, reinterpret_cast<CUstream>(handle));
  }

  SharedHandle share(std::byte* data) override {
    const Context::Current current(context_);
    CUipcMemHandle handle;
    PYC_CUDA(context_.driver(), cuIpcGetMemHandle, &handle, address(data));
    SharedHandle shared;
    static_assert(sizeof shared == sizeof handle);
    std::memcpy(shared.data(), &handle, sizeof handle);
    return shared;
  }
  ExecutorMemory map(const SharedHandle& shared) override {
    const Context::Current current(context_);
    CUipcMemHandle handle;
    std::memcpy(&handle, shared.data(), sizeof handle);
    CUdeviceptr data = 0;
    const CUresult result = context_.driver().cuIpcOpenMemHandle_v2(&data, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    check(context_.driver(), result, "cuIpcOpenMemHandle_v2", kWhyNotOpened);
    return mapped(pointer(data));
  }

 protected:
  void release(std::byte* data) noexcept override {
    context_.end([&] { context_.driver().cuMemFree_v2(address(data)); });
  }
  void release_staging(std::byte* data) noexcept override {
    context_.end([&] { context_.driver().cuMemFreeHost(data); });
  }
  void unmap(std::byte* data) noexcept override {
    context_.end([&] { context_.driver().cuIpcCloseMemHandle(address(data)); });
  }

 private:
  Context context_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(const DriverApi& driver, int ordinal, const void* image) {
  return std::make_unique<CudaExecutor>(driver, ordinal, image);
}

}  // namespace pyc::cuda
