// UpdateQ(owner) as a collective (section 4.1): several ranks enqueue, one dequeues.
//
// If `dequeue` names an iteration, updates of earlier ones become stale and are discarded, in the queue or before they
// are sent (section 6.2). An update waits while its slot has one that is not stale. Between nodes the sender's copy
// waits, and the sender waits only for the memory of copies.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "services/hop/member.h"

namespace pyc {

class UpdateQueueCollective final : public HopMember {
 public:
  struct Tags {
    std::optional<Iteration> iter;
    std::optional<Rank> sender;
  };
  struct Update {
    const std::byte* values;  ///< in the queue
    Iteration iter;
    Rank sender;
  };

  /// `options` has a graph in which all edges lead to `owner`. Otherwise like Hop::create.
  static std::shared_ptr<UpdateQueueCollective> create(std::shared_ptr<Engine> engine, Memory& memory,
                                                       HopOptions options, Rank owner, const Nodes& nodes,
                                                       Seconds timeout, const Engine::Interrupt& interrupt);

  Rank owner() const { return owner_; }

  /// For senders. Throws StallError if there is no room in time.
  void enqueue(const std::byte* values, Iteration iter, Seconds timeout, const Engine::Interrupt& interrupt);

  /// For the owner. Waits for `m` updates and passes them to `take`, by iteration and then by sender. Throws StallError
  /// if they do not arrive in time, and ClosedError if all ranks that could send them have left.
  void dequeue(std::size_t m, Tags tags, const std::function<void(const Update&)>& take, Seconds timeout,
               const Engine::Interrupt& interrupt);
  std::size_t size(Tags tags) const;

 private:
  UpdateQueueCollective(Engine& engine, Memory& memory, HopOptions options, Rank owner, const Nodes& nodes);

  HopEdges::Answer answer(Rank to, Iteration iter) const override;

  UpdateQueue& updates() const { return board_->updates(owner_); }
  Iteration oldest() const { return standing(owner_).iteration.load(); }
  bool has_room(Iteration iter) const;
  std::vector<std::size_t> senders_of(Tags tags) const;
  std::vector<Iteration> iterations_of(std::size_t sender, Tags tags) const;
  bool can_come(Tags tags) const;

  const Rank owner_;
};

}  // namespace pyc
