// UpdateQ(owner) by itself (section 4.1): some ranks enqueue, one dequeues.
//
// An update is stale if the owner has asked for a later iteration by name: it is discarded, in the queue or before it
// is sent (section 6.2). An update whose slot holds one that is not stale waits until that is dequeued. Between nodes
// the sender then has a copy, and waits only for the memory of that.
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
  /// Which updates: of one iteration, of one sender, or both.
  struct Tags {
    std::optional<Iteration> iter;
    std::optional<Rank> sender;
  };
  struct Update {
    const std::byte* values;  ///< in the queue
    Iteration iter;
    Rank sender;
  };

  /// `options`: a graph in which all edges lead to `owner`. As Hop::create.
  static std::shared_ptr<UpdateQueueCollective> create(std::shared_ptr<Engine> engine, Memory& memory,
                                                       HopOptions options, Rank owner, const Nodes& nodes,
                                                       Seconds timeout, const Engine::Interrupt& interrupt);

  Rank owner() const { return owner_; }

  /// Of a sender. StallError if there is no room in time.
  void enqueue(const std::byte* values, Iteration iter, Seconds timeout, const Engine::Interrupt& interrupt);

  /// Of the owner: waits for `m` updates, and shows `take` each of them, by iteration and then by sender. StallError
  /// if they do not come in time; ClosedError if all who could send them have left.
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
