// Models on the devices of a node's ranks: each rank's in an arena of its own, which the others have mapped.
//
// What a call does to a segment is queued on a stream at once, and polled for once. The application's calls and
// averages have a stream each. The arithmetic is made of sums that give the bits of the host (host_models.cc): where
// that adds a product, or divides, so do these.
//
// An arena is freed when no other rank has it mapped (services/common/arena_seats.h).
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
  /// Of the rank at `local` of `ranks`, which share `seats`, of ArenaSeats. Allocates all that it will ever need but
  /// what `make_values` is asked for. The models are zero.
  DeviceModels(std::shared_ptr<Executor> executor, const ModelShape& shape, const std::shared_ptr<std::byte>& seats,
               std::size_t ranks, std::size_t local);
  /// If others may still have the arena mapped, leaves it to the driver, which frees it with the process.
  ~DeviceModels() override;

  /// Maps the arenas of all others, which are made.
  void map_others();
  /// Ends this rank's part, at first; then says whether nobody uses its arena any more, which is freed by that. Calls
  /// that are made afterwards throw ClosedError.
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
  /// A stream with what work on a segment needs on the way; for one call at a time.
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

  // Queue work:
  void sum(Stream& s, std::byte* into, const std::byte* a, const std::byte* b, double factor, std::size_t count) const;
  void scale(Stream& s, std::byte* data, double factor, std::size_t count) const;
  void halve(Stream& s, std::byte* data, std::size_t count) const;
  void mean(Stream& s, Outputs into, const std::byte* a, const std::byte* b, std::size_t count) const;
  void add(Stream& s, const ModelRange& range, const std::byte* step, double factor, double factor_of_second) const;
  void copy_kept(Turn& turn, const ModelRange& range, std::byte* out) const;
  void mix(Turn& turn, std::size_t local, const ModelRange& range) const;

  const std::shared_ptr<Executor> executor_;
  const ModelShape shape_;
  const Acceleration acceleration_;  // if there is one
  const Elements held_;
  const std::size_t width_;  // bytes of an element
  const std::size_t local_;
  ExecutorMemory arena_;                // model, second model
  std::vector<ExecutorMemory> arenas_;  // by local rank, of the others
  ExecutorMemory staging_;              // of the host, for a segment; the lane's of the application
  Lane application_;
  Lane averages_;
  ArenaSeats seats_;
  bool is_detached_ = false;  // under both lanes
};

}  // namespace pyc
