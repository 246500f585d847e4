// Models in host memory that the ranks of a node share.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "services/neighbor_averaging/models.h"

namespace pyc {

class HostModels final : public Models {
 public:
  static std::size_t bytes(const ModelShape& shape);

  /// For the rank at `local`. `memories`: of all ranks of the node, page-aligned.
  HostModels(Memory& memory, const ModelShape& shape, std::vector<std::shared_ptr<std::byte>> memories,
             std::size_t local);

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
  std::byte* model(std::size_t local, std::size_t element) const;
  std::byte* second_model(std::size_t local, std::size_t element) const;
  void add_to_both(std::size_t element, const std::byte* delta, std::size_t count, double factor);
  void mix(std::size_t local, const ModelRange& range);

  Memory& memory_;
  const ModelShape shape_;
  const Acceleration acceleration_;                         // defaults if the shape has none
  const std::size_t width_;                                 // bytes of an element
  const std::vector<std::shared_ptr<std::byte>> memories_;  // by local rank: model, second model
  const std::size_t local_;
  BufferPtr scratch_;  // one block
};

}  // namespace pyc
