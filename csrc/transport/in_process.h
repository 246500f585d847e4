// The base of transports without a network: an endpoint per rank that matches arriving messages with posted receives.
// Derived classes move messages between endpoints (loopback.h, simulated.h).
#pragma once

#include <deque>
#include <limits>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace pyc {

class InProcessTransport : public Transport {
 public:
  struct Message {
    Rank from = 0;
    Tag tag = 0;
    bool is_active = false;
    std::vector<std::byte> header;  // or the active message itself
    std::vector<std::byte> payload;
  };

  InProcessTransport(Rank rank, Rank size) : rank_(rank), size_(size) {}

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  Rank local_ranks() const override { return size(); }
  Tag max_tag() const override { return std::numeric_limits<Tag>::max(); }
  std::size_t in_flight() const override { return posted_count_ + sent_.size(); }

  void send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload, Cookie cookie) override;
  void recv(Rank from, Tag tag, Bytes payload, Cookie cookie) override;
  bool poll(Listener& listener) override;
  void close() override {}

 protected:
  /// Starts to move a message to rank `to`.
  virtual void dispatch(Rank to, Message message) = 0;
  /// Takes the next message that has arrived here. Returns false if there is none.
  virtual bool collect(Message& message) = 0;

 private:
  void transmit_active(Rank to, ConstBytes message) override;

  struct Posted {
    Bytes payload;
    Cookie cookie;
  };
  struct Queue {
    std::deque<Posted> posted;
    std::deque<Message> unexpected;
  };

  Queue& queue(Rank from, Tag tag) {
    return queues_[(static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32) |
                   static_cast<std::uint32_t>(tag)];
  }
  static void deliver(const Message& message, const Posted& posted, Listener& listener);

  Rank rank_;
  Rank size_;
  std::unordered_map<std::uint64_t, Queue> queues_;
  std::vector<Cookie> sent_;                         // completed at the next poll: the payload was copied
  std::vector<std::pair<Message, Posted>> matched_;  // by `recv`, for delivery at the next poll
  std::size_t posted_count_ = 0;
};

}  // namespace pyc
