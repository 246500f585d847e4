// Tests only: a CUDA driver that works on host memory and is as unkind as a device may be.
//
// Queued work runs later, piece by piece, in an order drawn from the seed. Only the order within a stream and waits for
// events constrain it. Device addresses are not host addresses. The first bytes of memory are poisoned at allocation
// and at release. Work on an address that is not allocated or mapped is an illegal address, and every later call fails.
// Tests can inject errors. `problems` lists misuse, such as a call that breaks a capture of the caller's, and leaked
// handles. Kernels run by their host instantiation (host_kernels.h).
//
// At most one exists at a time, because the driver's functions have no argument that selects one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "memory/cuda/driver_api.h"

namespace pyc::cuda {

class SimulatedDriver {
 public:
  explicit SimulatedDriver(std::uint64_t seed, std::size_t capacity = std::size_t{1} << 30U, int devices = 1);
  ~SimulatedDriver();
  SimulatedDriver(const SimulatedDriver&) = delete;
  SimulatedDriver& operator=(const SimulatedDriver&) = delete;

  const DriverApi& api() const;
  static const void* image();  ///< the image from which its modules are loaded

  /// The n-th call of a driver function from now, counted from 1, fails. One more name is "cuMemcpyAsync to the host".
  void fail(const std::string& function, std::uint64_t nth, int error);
  /// Sets an attribute of its devices; nullopt: the driver does not know it.
  void set_attribute(int attribute, std::optional<int> value);
  /// The n-th piece of work from now, counted from 1, has an illegal address.
  void fault(std::uint64_t nth);

  /// A stream of the caller's, for the library. It ends with the driver.
  std::uintptr_t stream_of_caller(int device = 0);
  /// From now on, the caller's work on the stream goes into a CUDA graph, and work of the library is misuse.
  void begin_capture(std::uintptr_t stream);
  bool end_capture(std::uintptr_t stream);  ///< whether the capture is intact
  /// Queues the caller's own work, which writes `bytes` to device memory.
  void produce(std::uintptr_t stream, const std::byte* to, std::vector<std::byte> bytes);
  /// Work that is queued on the stream later waits for `let_go`.
  void hold(std::uintptr_t stream);
  void let_go(std::uintptr_t stream);
  /// Runs a piece of work from a stream drawn by the seed. Returns whether any was ready.
  bool step();
  void finish();  ///< runs all work; std::runtime_error if streams wait for each other

  /// The bytes after the completed work; std::invalid_argument if they are not allocated.
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) const;

  std::uint64_t steps() const;
  /// Lists misuse and, with `end`, leaked handles.
  std::vector<std::string> problems(bool end) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace pyc::cuda
