// What one rank gives to a P-Reduce, and its way into the form in which partial results are held and back.
#pragma once

#include <cstddef>
#include <optional>

#include "memory/executor.h"
#include "memory/memory.h"

namespace pyc {

struct GroupData {
  std::byte* values;  ///< `count` elements, which the result replaces; null: this rank has nothing, and is absent
  std::size_t count;
  DataType type;
  ReduceOp op;
  /// How many times this rank's values count. With it the result is sum(weight * values) / sum(weight): float types,
  /// AVG.
  std::optional<double> weight = std::nullopt;

  Elements elements() const { return elements_of(type, op); }
  /// Elements of a partial result: the weights are added up behind the values.
  std::size_t length() const { return count + (weight ? 1 : 0); }
};

/// work = the values, widened and weighted.
void load_values(Memory& memory, const GroupData& data, std::byte* work);

/// Writes the weight behind the values of `work`.
void write_weight(const GroupData& data, std::byte* work);

/// The weights that were added up in a partial result.
double total_weight(const GroupData& data, const std::byte* work);

/// values = the sum of `contributors` ranks' values, divided if it is to be averaged (weighted ones have been).
void store_values(Memory& memory, const GroupData& data, const std::byte* work, std::size_t contributors);

// The same, queued, with the bits of the host. The weight is not written.

void load_values(Stream& stream, const GroupData& data, std::byte* work);
void store_values(Stream& stream, const GroupData& data, const std::byte* work, std::size_t contributors);
/// data = data * factor, of a float type.
void scale(Stream& stream, DataType type, std::byte* data, double factor, std::size_t count);

}  // namespace pyc
