// One rank's data for a P-Reduce, and its conversion to and from the form of partial results.
#pragma once

#include <cstddef>
#include <optional>

#include "memory/executor.h"
#include "memory/memory.h"

namespace pyc {

struct GroupData {
  std::byte* values;  ///< `count` elements, replaced by the result; null if this rank is absent
  std::size_t count;
  DataType type;
  ReduceOp op;
  /// The weight of this rank's values, for float types and AVG. The result is then sum(weight * values) / sum(weight).
  std::optional<double> weight = std::nullopt;

  Elements elements() const { return elements_of(type, op); }
  /// Elements of a partial result: the sum of weights follows the values.
  std::size_t length() const { return count + (weight ? 1 : 0); }
};

/// work = the values, widened and weighted.
void load_values(Memory& memory, const GroupData& data, std::byte* work);

/// Writes the weight after the values in `work`.
void write_weight(const GroupData& data, std::byte* work);

/// The sum of weights in a partial result.
double total_weight(const GroupData& data, const std::byte* work);

/// values = the sum over `contributors` ranks, divided for an average (a weighted one already is).
void store_values(Memory& memory, const GroupData& data, const std::byte* work, std::size_t contributors);

// The same, queued on a stream, with the same bits. They do not write the weight.

void load_values(Stream& stream, const GroupData& data, std::byte* work);
void store_values(Stream& stream, const GroupData& data, const std::byte* work, std::size_t contributors);
/// data = data * factor, of a float type.
void scale(Stream& stream, DataType type, std::byte* data, double factor, std::size_t count);

}  // namespace pyc
