// All ranks in one thread, in virtual time. The cost of a message of n bytes follows LogGP (Alexandrov et al. 1995):
// the sender is busy for o + G n, the message travels for L, then the receiver is busy for o. A rank does one thing at
// a time, in the order of due times. With all costs 0 the network is ideal, and the remaining run time is the waiting
// that the policy causes. A seeded jitter varies the order of arrivals. Messages between two ranks stay in order.
#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <unordered_map>
#include <vector>

#include "transport/in_process.h"

namespace pyc {

/// Seconds, and seconds per byte.
struct NetworkCosts {
  Seconds latency = 0;       ///< L
  Seconds overhead = 0;      ///< o
  Seconds gap_per_byte = 0;  ///< G
  Seconds jitter = 0;        ///< each message takes up to this much longer
};

class SimulatedTransport;

class SimulatedNetwork {
 public:
  SimulatedNetwork(Rank size, NetworkCosts costs, std::uint64_t seed);
  ~SimulatedNetwork();

  Seconds now() const { return now_; }
  Rank size() const { return static_cast<Rank>(endpoints_.size()); }

  /// The endpoint of a rank, owned by the caller; at most one per rank.
  std::unique_ptr<Transport> endpoint(Rank rank);

  /// Calls `event` at `time`, or now if `time` has passed.
  void at(Seconds time, std::function<void()> event);

  /// Makes the rank busy for `duration`, which delays its sends and receives.
  void occupy(Rank rank, Seconds duration);
  /// When the rank's computations so far are finished; now at the earliest.
  Seconds computed(Rank rank) const;

  /// Handles the next event: calls it, or puts a message into the endpoint of its rank. Sets `woken` to that rank, or
  /// to kNoRank if no rank has received a message. Returns false if no event is left.
  bool step(Rank& woken);

  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Multiplies payload lengths in the costs, to simulate large transfers with few elements.
  void scale_payload(double factor) { payload_factor_ = factor; }

 private:
  friend class SimulatedTransport;
  void dispatch(Rank from, Rank to, InProcessTransport::Message message);

  struct Event {
    Seconds time;
    std::uint64_t order;  // events at the same time run in the order of their creation
    Rank to;              // kNoRank: an action
    std::size_t slot;     // in in_flight_ or actions_
    bool is_taken;        // the receiver has spent its overhead on the message
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  template <class T>
  struct Slots {
    std::vector<T> items;
    std::vector<std::size_t> free;
    std::size_t put(T item) {
      if (free.empty()) {
        items.push_back(std::move(item));
        return items.size() - 1;
      }
      const std::size_t slot = free.back();
      free.pop_back();
      items[slot] = std::move(item);
      return slot;
    }
    T take(std::size_t slot) {
      free.push_back(slot);
      return std::move(items[slot]);
    }
  };
  struct PerRank {
    SimulatedTransport* transport = nullptr;
    Seconds busy_until = 0;
    Seconds computed = 0;
  };

  NetworkCosts costs_;
  std::mt19937_64 random_;
  Seconds now_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Slots<InProcessTransport::Message> in_flight_;
  Slots<std::function<void()>> actions_;
  std::vector<PerRank> endpoints_;
  std::unordered_map<std::uint64_t, Seconds> last_arrival_;  // per (from, to): keeps messages in order
  std::uint64_t messages_ = 0;
  std::uint64_t bytes_ = 0;
  double payload_factor_ = 1;
};

}  // namespace pyc
