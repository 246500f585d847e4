// Models on the devices of a node's ranks, each in an arena that the other ranks have mapped. An arena is freed when no
// other rank has it mapped (services/common/arena_seats.h).
//
// A call queues its work on a stream and then polls for the end. The application's calls and averages have a stream
// each. The operations give the host's bits (host_models.cc), because they add products and divide where the host does.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/executor.h"
#include "services/common/arena_seats.h"
#include "services/neighbor_averaging/models.h"

namespace pyc {

class DeviceModels final : public Models {
 public:
  /// For the rank at `local` of `ranks`, which share `seats` (ArenaSeats). Allocates all memory but the one for
  /// `make_values`. The models are zero.
  DeviceModels(std::shared_ptr<Executor> executor, const ModelShape& shape, const std::shared_ptr<std::byte>& seats,
               std::size_t ranks, std::size_t local);
  /// If other ranks may have the arena mapped, leaves it to the driver, which frees it with the process.
  ~DeviceModels() override;

  /// Maps the other ranks' arenas, which must exist.
  void map_others();
  /// The first call ends this rank's mappings; afterwards all other calls throw ClosedError. Returns whether the arena
  /// is freed, which waits until no other rank has it mapped.
  bool release();
  bool is_released() const { return seats_.is_released(); }

  void read(Elements as, const ModelRange& range, std::byte* out) override;
  void apply(Elements as, const ModelRange& range, const std::byte* delta, double factor) override;
  void assign(Elements as, const ModelRange& range, const std::byte* values) override;

  void read_kept(const ModelRange& range, std::byte* out) override;
  void replace(const ModelRange& range, const std::byte* before, const std::byte* values) override;
  void exchange(const ModelRange& range, std::byte* numbers) override;

  void average(std::size_t other, const ModelRange& range) override;
  std::shared_ptr<std::byte[]> make_values() override;
  void lend(const ModelRange& range, std::byte* values) override;
  void meet(const ModelRange& range, std::byte* values) override;
  void subtract(const ModelRange& range, const std::byte* step) override;

 private:
  /// A stream and scratch memory for one call at a time.
  struct Lane {
    std::mutex mutex;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> done;
    std::vector<ExecutorMemory> scratch;
  };
  class Turn;

  void make(Lane& lane, std::size_t scratch);
  void clear();

  std::byte* model(std::size_t local, std::size_t element) const;
  std::byte* second_model(std::size_t local, std::size_t element) const;

  // These queue work.
  void sum(Stream& s, std::byte* into, const std::byte* a, const std::byte* b, double factor, std::size_t count) const;
  void scale(Stream& s, std::byte* data, double factor, std::size_t count) const;
  void halve(Stream& s, std::byte* data, std::size_t count) const;
  void mean(Stream& s, Outputs into, const std::byte* a, const std::byte* b, std::size_t count) const;
  void add(Stream& s, const ModelRange& range, const std::byte* step, double factor, double factor_of_second) const;
  void copy_kept(Turn& turn, const ModelRange& range, std::byte* out) const;
  void mix(Turn& turn, std::size_t local, const ModelRange& range) const;

  const std::shared_ptr<Executor> executor_;
  const ModelShape shape_;
  const Acceleration acceleration_;  // defaults if the shape has none
  const Elements held_;
  const std::size_t width_;  // bytes of an element
  const std::size_t local_;
  ExecutorMemory arena_;                // model, second model
  std::vector<ExecutorMemory> arenas_;  // of the other ranks, by local rank
  ExecutorMemory staging_;              // host memory for one segment; used in the application's lane
  Lane application_;
  Lane averages_;
  ArenaSeats seats_;
  bool is_detached_ = false;  // protected by the mutexes of both lanes
};

}  // namespace pyc
