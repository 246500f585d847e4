// Tests only: the state of a simulated driver.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/splitmix.h"
#include "memory/cuda/host_kernels.h"
#include "memory/cuda/simulated_driver.h"
#include "memory/cuda/simulated_storage.h"

namespace pyc::cuda {

struct SimulatedDriver::State {
  static constexpr std::uint64_t kFirstAddress = std::uint64_t{1} << 47U;  // beyond the addresses of a process on Linux
  static constexpr std::uint64_t kGap = std::uint64_t{1} << 20U;           // between two allocations
  static constexpr std::size_t kBlock = std::size_t{2} << 20U;             // of the driver's allocator
  static constexpr int kAnyDevice = -1;                                    // of the default streams
  static constexpr int kPriority = -5;                                     // the highest priority of streams
  static constexpr auto kFresh = std::byte{0xfb};                          // a large number in every float type
  static constexpr auto kFreed = std::byte{0xdd};

  /// At the start of an allocation. Poisoning whole blocks of the driver takes too long.
  static constexpr std::size_t kMostPoisoned = std::size_t{256} << 10U;

  /// An allocation, or a mapping of one.
  struct Region {
    std::uint64_t base = 0;
    std::shared_ptr<SimulatedStorage> storage;
    bool is_mapping = false;
    bool live = true;
    int device = 0;

    std::size_t bytes() const { return storage->bytes(); }
  };
  struct Event {
    int device = 0;
    std::uint64_t recorded = 0;  // number of records
    std::uint64_t reached = 0;   // ... whose earlier work is done
  };
  struct Work {
    std::function<bool()> is_ready;  // empty: always ready
    std::function<CUresult()> run;
    std::vector<std::uint64_t> regions;  // by base: the accessed regions
  };
  struct Stream {
    bool of_caller = false;
    int device = kAnyDevice;
    std::deque<Work> queue;
  };
  struct Failure {
    std::uint64_t calls_before = 0;
    CUresult error = CUDA_SUCCESS;
  };

  explicit State(std::uint64_t seed) : random(seed) {}

  /// The start of each function: returns a due error, and lets some queued work happen.
  CUresult enter(const char* function, bool needs_context = true);
  void work_meanwhile();
  /// The error of this call, if it is to fail.
  std::optional<int> due_error(const std::string& function);
  void check_context(const char* function);
  /// For functions that other threads must not call during a capture, unless it is relaxed: a call breaks the capture.
  CUresult check_captures(const char* function);
  void misused(const std::string& what) { misuses.push_back("simulated driver: " + what); }

  Region* find(std::uint64_t address, std::size_t bytes);
  /// The memory of a device or host address; null if there is none.
  std::byte* translate(std::uint64_t address, std::size_t bytes, bool by_kernel);
  bool is_touched(std::uint64_t base) const;
  Region& add_region(std::shared_ptr<SimulatedStorage> storage, bool is_mapping);
  /// The allocation or mapping that starts there; null if there is none.
  Region* region_at(std::uint64_t base, bool is_mapping);

  Stream* stream(CUstream handle);
  CUresult queue(CUstream handle, Work work);
  bool step();

  SplitMix random;
  std::size_t capacity = 0;
  std::size_t used = 0;
  int devices = 1;
  std::map<int, std::optional<int>> attributes = {
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 2},
      {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
  };  // of each device
  std::map<std::string, Failure> failures;
  std::uint64_t fault_at = 0;  // a step; 0 if no fault is due
  CUresult sticky = CUDA_SUCCESS;

  std::map<std::uint64_t, Region> regions;  // by base, with freed ones
  std::uint64_t next_address = kFirstAddress;
  std::map<std::byte*, std::unique_ptr<std::vector<std::byte>>> pinned;
  std::map<CUstream, std::unique_ptr<Stream>> streams;
  std::set<std::uintptr_t> held;      // streams
  std::map<CUstream, bool> captures;  // of streams: whether it is broken
  std::map<CUevent, std::shared_ptr<Event>> events;
  std::set<CUmodule> modules;
  std::map<CUfunction, KernelDescription> functions;
  std::set<CUfunction> loaded;
  std::uint64_t next_handle = 0x1000;
  int contexts = 0;  // retained
  int current = 0;   // pushed
  std::uint64_t steps = 0;
  std::vector<std::string> misuses;
};

/// The driver's state of a thread.
struct SimulatedThread {
  std::vector<int> contexts;  // pushed, by device
  int capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};
extern thread_local SimulatedThread simulated_thread;

/// Guards all state, because any thread calls the functions.
extern std::recursive_mutex simulated_mutex;
extern SimulatedDriver::State* simulated_state;
extern const DriverApi kSimulatedApi;

}  // namespace pyc::cuda
