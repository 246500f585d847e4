// The models of a node's ranks and the operations on them: in shared host memory (host_models.h) or on devices
// (device_models.h). Callers hold the locks of a call's range (model_board.h). Work is done when a call returns.
//
// A2CiD2 (Nabli, Belilovsky, Oyallon 2023) keeps a second model x~ beside each model. Each average first mixes the two,
// which keeps exp(-2 eta) of their difference. It then moves x~ by alpha times the difference to the neighbor, instead
// of half of it. Ranks mix at different times, so the sum over ranks of x + x~ is what averages preserve.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "core/checked.h"
#include "memory/memory.h"

namespace pyc {

/// A2CiD2, sections 3.1 and 3.3.
struct Acceleration {
  double kept = 1;   ///< factor of x - x~ from one average to the next
  double alpha = 0;  ///< factor of the difference to the neighbor, for x~
};

struct ModelShape {
  std::size_t count;          ///< elements of a model
  DataType type;              ///< float32 or float64
  std::size_t segment_count;  ///< elements of a segment; the last one may be shorter
  std::optional<Acceleration> acceleration;

  std::size_t segments() const { return (count + segment_count - 1) / segment_count; }
  std::size_t segment_bytes() const { return segment_count * size_of(type); }
};

/// Elements of a model, within one segment.
struct ModelRange {
  std::size_t first;
  std::size_t count;
};

class Models {
 public:
  virtual ~Models() = default;

  // ---- this rank's model, and arrays of the application in memory of the same kind, whose elements are of `as.type`

  virtual void read(Elements as, const ModelRange& range, std::byte* out) = 0;
  /// Adds factor * delta to both models.
  virtual void apply(Elements as, const ModelRange& range, const std::byte* delta, double factor) = 0;
  /// Sets both models.
  virtual void assign(Elements as, const ModelRange& range, const std::byte* values) = 0;

  // ---- this rank's model, and memory of the host, whose elements are those that models are held in

  /// The value whose sum averages preserve: x, or (x + x~) / 2 with two models.
  virtual void read_kept(const ModelRange& range, std::byte* out) = 0;
  /// Sets both models to `values` plus the additions since `read_kept` returned `before`.
  virtual void replace(const ModelRange& range, const std::byte* before, const std::byte* values) = 0;
  /// Adds `numbers` to both models, then sets numbers = model.
  virtual void exchange(const ModelRange& range, std::byte* numbers) = 0;

  // ---- averages

  virtual void average(std::size_t other, const ModelRange& range) = 0;

  /// Memory for the values of a whole model, for messages.
  virtual std::shared_ptr<std::byte[]> make_values() = 0;
  // `values`: a part of that memory.
  virtual void lend(const ModelRange& range, std::byte* values) = 0;
  /// Averages with another rank's lent values, which become the step that it must subtract.
  virtual void meet(const ModelRange& range, std::byte* values) = 0;
  virtual void subtract(const ModelRange& range, const std::byte* step) = 0;
};

/// `Models::replace` for host memory: now = values + (now - before), exact if nothing was added.
void replace_values(Memory& memory, DataType type, std::byte* now, const std::byte* before, const std::byte* values,
                    std::size_t count);

}  // namespace pyc
