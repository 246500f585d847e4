// The executor of host memory. Every call completes before it returns, so events are always reached.
#include <algorithm>
#include <cstring>

#include "bindings/testing.h"
#include "core/error.h"
#include "memory/executor.h"
#include "memory/memory.h"

namespace pyc {
namespace {

/// Elements per block. Their accumulators, 8 bytes each or 16 for complex128, stay in the first-level cache.
constexpr std::size_t kElements = 1024;

struct alignas(64) Accumulators {
  std::byte data[kElements * sizeof(double) * 2];  // the widest: complex128
};

class HostEvent final : public Event {
 public:
  bool reached() override { return true; }
};

class HostStream final : public Stream {
 public:
  void wait(Event&) override {}
  void record(Event&) override {}

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override { memory_.copy(to, from, bytes); }

  void fold(Elements elements, ReduceOp op, Outputs outputs, Inputs inputs, std::size_t count,
            std::size_t divisor) override {
    const std::size_t width = size_of(elements.type);
    for_each_block(count, [&](std::size_t first, std::size_t length) {
      Accumulators total;
      memory_.load(elements, total.data, inputs[0] + first * width, length);
      for (const std::byte* input : inputs.subspan(1)) {
        memory_.accumulate(elements, op, total.data, input + first * width, length);
      }
      store_all(elements, outputs, total, first, length, divisor);
    });
  }

  void weighted_sum(DataType type, Outputs outputs, Inputs inputs, std::span<const double> factors,
                    std::size_t count) override {
    const Elements elements = elements_of(type, ReduceOp::kSum);
    const std::size_t width = size_of(type);
    for_each_block(count, [&](std::size_t first, std::size_t length) {
      Accumulators total;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        Accumulators term;
        Accumulators& into = i == 0 ? total : term;
        memory_.load(elements, into.data, inputs[i] + first * width, length);
        memory_.scale(elements.accumulator, into.data, length, factors[i]);
        if (i > 0) memory_.reduce(elements, ReduceOp::kSum, total.data, term.data, length);
      }
      store_all(elements, outputs, total, first, length, 1);
    });
  }

  void load(Elements elements, std::byte* into, const std::byte* from, std::size_t count) override {
    memory_.load(elements, into, from, count);
  }

  void store(Elements elements, std::byte* into, const std::byte* from, std::size_t count,
             std::size_t divisor) override {
    memory_.store(elements, into, from, count, divisor);
  }

 private:
  template <class Body>
  static void for_each_block(std::size_t count, Body body) {
    for (std::size_t first = 0; first < count; first += kElements) body(first, std::min(kElements, count - first));
  }

  void store_all(Elements elements, Outputs outputs, const Accumulators& total, std::size_t first, std::size_t length,
                 std::size_t divisor) {
    for (std::byte* const output : outputs) {
      memory_.store(elements, output + first * size_of(elements.type), total.data, length, divisor);
    }
  }

  Memory& memory_ = host_memory();
};

class HostExecutor final : public Executor {
 public:
  std::string_view kind() const override { return "host"; }

  ExecutorMemory allocate(std::size_t bytes) override { return owned(host_memory().allocate(bytes).release()); }
  ExecutorMemory allocate_staging(std::size_t bytes) override { return allocate(bytes); }
  std::unique_ptr<Stream> new_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<Event> new_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Stream> stream_of_caller(std::uintptr_t) override { return new_stream(); }

  // Only within this process. The ranks of a node share memory through `node` instead.
  SharedHandle share(std::byte* data) override {
    SharedHandle handle{};
    std::memcpy(handle.data(), &data, sizeof data);
    return handle;
  }
  ExecutorMemory map(const SharedHandle& handle) override {
    std::byte* data = nullptr;
    std::memcpy(&data, handle.data(), sizeof data);
    return mapped(data);
  }

 protected:
  void release(std::byte* data) noexcept override { host_memory().release(data); }
  void release_staging(std::byte* data) noexcept override { release(data); }
  void unmap(std::byte*) noexcept override {}
};

}  // namespace

Executor& host_executor() {
  static HostExecutor executor;
  return executor;
}

}  // namespace pyc
