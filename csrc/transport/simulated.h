// All ranks in one thread and in virtual time. A message of n bytes costs by LogGP (Alexandrov et al. 1995): the sender
// is busy for o and G n, the message flies for L, then the receiver is busy for o. A rank does one thing at a time, in
// the order in which it falls due. With all costs 0 the network is ideal, and what then remains of a run's time is the
// waiting that the policy itself causes. A jitter, drawn by seed, varies the order in
// which messages arrive; messages between two ranks stay in order.
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

/// The clock, the wires and the events of a simulation.
class SimulatedNetwork {
 public:
  SimulatedNetwork(Rank size, NetworkCosts costs, std::uint64_t seed);
  ~SimulatedNetwork();

  Seconds now() const { return now_; }
  Rank size() const { return static_cast<Rank>(endpoints_.size()); }

  /// The endpoint of a rank, owned by the caller; at most one per rank.
  std::unique_ptr<Transport> endpoint(Rank rank);

  /// Calls `event` at `time`, or now if that has passed.
  void at(Seconds time, std::function<void()> event);

  /// The rank is busy computing for `duration`: its sends start and its messages are seen later.
  void occupy(Rank rank, Seconds duration);
  /// When what the rank has computed so far is ready; at the earliest now.
  Seconds computed(Rank rank) const;

  /// Whose messages have arrived or which event fell due next; false if nothing is left to happen. Runs the event, or
  /// puts the message into its rank's endpoint, and sets `woken` to that rank (kNoRank after an event).
  bool step(Rank& woken);

  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Multiplies payload lengths where costs are computed: large transfers are simulated with few elements.
  void scale_payload(double factor) { payload_factor_ = factor; }

 private:
  friend class SimulatedTransport;
  void dispatch(Rank from, Rank to, InProcessTransport::Message message);

  struct Event {
    Seconds time;
    std::uint64_t order;  // of events at the same time, the one caused first
    Rank to;              // kNoRank: run `action`
    std::size_t slot;     // in messages_in_flight_ or actions_
    bool is_taken;        // the receiver has spent its time on the message
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
