// Tests only: a CUDA driver that works on the memory of the host and is as unkind as a device may be.
//
// Work is queued on its stream and done later, piece by piece, in an order drawn from the seed that keeps nothing but
// the order of a stream and the waits for events. Addresses of devices are no addresses of the host. Memory is
// poisoned, at its begin, when it is allocated and when it is freed; work on an address that nothing is allocated at,
// or mapped to, is an illegal address, which fails every later call. Errors can be injected, and handles are counted:
// `problems` says what was misused and what is left: also a call that breaks a capture of the caller's. Kernels run by
// their host instantiation (host_kernels.h).
//
// At most one exists at a time, since the driver's functions have no argument that says which.
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
  static const void* image();  ///< what its modules are loaded from

  /// The n-th call of a function of the driver from now on, counted from 1, returns an error. There is also
  /// "cuMemcpyAsync to the host".
  void fail(const std::string& function, std::uint64_t nth, int error);
  /// What its devices say of an attribute from now on; nothing: that the driver does not know it.
  void set_attribute(int attribute, std::optional<int> value);
  /// The n-th piece of work from now on, counted from 1, is an illegal address.
  void fault(std::uint64_t nth);

  /// A stream of the caller's, which the library is given; ends with the driver.
  std::uintptr_t stream_of_caller(int device = 0);
  /// From now on what the caller queues there would go into a CUDA graph; what the library queues there is misuse.
  void begin_capture(std::uintptr_t stream);
  bool end_capture(std::uintptr_t stream);  ///< whether nobody has broken it
  /// Queues the caller's own work: writes `bytes` to device memory.
  void produce(std::uintptr_t stream, const std::byte* to, std::vector<std::byte> bytes);
  /// What is queued on that stream from now on waits until it is let go.
  void hold(std::uintptr_t stream);
  void let_go(std::uintptr_t stream);
  /// Does a piece of work, of a stream drawn by the seed. Whether there was any that could be done.
  bool step();
  void finish();  ///< all of it; std::runtime_error if streams wait for each other for ever

  /// The bytes as they are now, done work alone; std::invalid_argument if it is not allocated.
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) const;

  std::uint64_t steps() const;
  /// What was misused, and `end`: at the end, also what is left.
  std::vector<std::string> problems(bool end) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace pyc::cuda
