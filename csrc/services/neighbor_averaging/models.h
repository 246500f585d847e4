// The models of a node's ranks, and what is done to them: in memory of the host that the ranks share (host_models.h),
// or on devices (device_models.h). Who calls holds the locks of what a call works on (model_board.h). Work is done when
// a call returns.
//
// A second model x~ beside each serves A2CiD2 (Nabli, Belilovsky, Oyallon 2023): before each average the two are mixed,
// exp(-2 eta) of their difference is kept, and an average moves x~ by alpha of the difference instead of half of it.
// Ranks mix at different moments, so what is kept is the sum over ranks of x + x~.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "core/checked.h"
#include "memory/memory.h"

namespace pyc {

/// Of A2CiD2, sections 3.1 and 3.3.
struct Acceleration {
  double kept = 1;   ///< of x - x~ from one average to the next
  double alpha = 0;  ///< of the difference to the neighbor, for x~
};

struct ModelShape {
  std::size_t count;          ///< elements of a model
  DataType type;              ///< float32 or float64
  std::size_t segment_count;  ///< elements of a segment, the last of which may be shorter
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
  /// model += factor * delta, of both models.
  virtual void apply(Elements as, const ModelRange& range, const std::byte* delta, double factor) = 0;
  /// model = values, of both models.
  virtual void assign(Elements as, const ModelRange& range, const std::byte* values) = 0;

  // ---- this rank's model, and memory of the host, whose elements are those that models are held in

  /// What averages keep the sum of: (x + x~) / 2, where there are two models.
  virtual void read_kept(const ModelRange& range, std::byte* out) = 0;
  /// model = values, of both models, and what has been added since `read_kept` gave `before` stays added.
  virtual void replace(const ModelRange& range, const std::byte* before, const std::byte* values) = 0;
  /// model += numbers, of both models, then numbers = model.
  virtual void exchange(const ModelRange& range, std::byte* numbers) = 0;

  // ---- averages

  /// Of this rank's model and of another's.
  virtual void average(std::size_t other, const ModelRange& range) = 0;

  /// Memory for the values of a whole model, from which messages are sent.
  virtual std::shared_ptr<std::byte[]> make_values() = 0;
  // With a part of that:
  virtual void lend(const ModelRange& range, std::byte* values) = 0;
  /// Averages with values that another rank has lent, which become the step that it is to subtract.
  virtual void meet(const ModelRange& range, std::byte* values) = 0;
  virtual void subtract(const ModelRange& range, const std::byte* step) = 0;
};

/// Of what `Models::replace` replaces, in memory of the host: now = values, and what has been added since it was
/// `before` stays added.
void replace_values(Memory& memory, DataType type, std::byte* now, const std::byte* before, const std::byte* values,
                    std::size_t count);

}  // namespace pyc
