#include <memory>
#include <new>

#include "cpp_test.h"
#include "services/common/node_ranks.h"

namespace pyc {

PYC_TEST(node_ranks_are_notified_and_asked_for_by_rank) {
  const Nodes nodes({0, 1, 1, 0, 1});  // ranks 1, 2 and 4 share a node
  const std::size_t bytes = NodeRanks::bytes(3);
  PYC_CHECK(bytes % 4096 == 0);
  const std::shared_ptr<void> memory(::operator new(bytes, std::align_val_t{4096}),
                                     [](void* at) { ::operator delete(at, std::align_val_t{4096}); });
  std::fill_n(static_cast<std::byte*>(memory.get()), bytes, std::byte{0});
  auto* const start = static_cast<std::byte*>(memory.get());
  const NodeRanks one(start, nodes, 1);
  const NodeRanks two(start, nodes, 2);
  const NodeRanks four(start, nodes, 4);
  const std::uint32_t seen = two.notified();
  four.notify(2);
  four.notify(2);
  PYC_CHECK(two.notified() == seen + 2);
  PYC_CHECK(one.notified() == 0 && four.notified() == 0);
  two.sleep(seen, 0.9);  // returns at once: it was notified since
  PYC_CHECK(one.state(4) == ProcessState::kAlive);
  PYC_CHECK(one.gone().empty());
}

}  // namespace pyc
