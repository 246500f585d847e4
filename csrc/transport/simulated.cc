#include "transport/simulated.h"

#include <algorithm>
#include <deque>

#include "core/error.h"

namespace pyc {

class SimulatedTransport final : public InProcessTransport {
 public:
  SimulatedTransport(Rank rank, SimulatedNetwork& network)
      : InProcessTransport(rank, network.size()), network_(network) {}
  ~SimulatedTransport() override { network_.endpoints_[static_cast<std::size_t>(rank())].transport = nullptr; }

  Seconds now() const override { return network_.now(); }
  void arrived(Message message) { inbox_.push_back(std::move(message)); }

 private:
  void dispatch(Rank to, Message message) override { network_.dispatch(rank(), to, std::move(message)); }
  bool collect(Message& message) override {
    if (inbox_.empty()) return false;
    message = std::move(inbox_.front());
    inbox_.pop_front();
    return true;
  }

  SimulatedNetwork& network_;
  std::deque<Message> inbox_;
};

SimulatedNetwork::SimulatedNetwork(Rank size, NetworkCosts costs, std::uint64_t seed)
    : costs_(costs), random_(seed), endpoints_(static_cast<std::size_t>(size)) {}

SimulatedNetwork::~SimulatedNetwork() = default;

std::unique_ptr<Transport> SimulatedNetwork::endpoint(Rank rank) {
  PerRank& entry = endpoints_.at(static_cast<std::size_t>(rank));
  if (entry.transport != nullptr) throw InternalError("a simulated rank has one endpoint");
  auto transport = std::make_unique<SimulatedTransport>(rank, *this);
  entry.transport = transport.get();
  return transport;
}

void SimulatedNetwork::at(Seconds time, std::function<void()> event) {
  events_.push({std::max(time, now_), order_++, kNoRank, actions_.put(std::move(event)), false});
}

void SimulatedNetwork::occupy(Rank rank, Seconds duration) {
  PerRank& entry = endpoints_[static_cast<std::size_t>(rank)];
  entry.busy_until = std::max(entry.busy_until, now_) + duration;
  entry.computed = entry.busy_until;
}

Seconds SimulatedNetwork::computed(Rank rank) const {
  return std::max(now_, endpoints_[static_cast<std::size_t>(rank)].computed);
}

void SimulatedNetwork::dispatch(Rank from, Rank to, InProcessTransport::Message message) {
  const double payload = payload_factor_ * static_cast<double>(message.payload.size());
  const double bytes = static_cast<double>(message.header.size()) + payload;
  ++messages_;
  bytes_ += static_cast<std::uint64_t>(bytes);

  PerRank& sender = endpoints_[static_cast<std::size_t>(from)];
  const Seconds injected = std::max(sender.busy_until, now_) + costs_.overhead + costs_.gap_per_byte * bytes;
  sender.busy_until = injected;
  Seconds arrival = injected + costs_.latency;
  if (costs_.jitter > 0) arrival += std::uniform_real_distribution<Seconds>(0, costs_.jitter)(random_);

  const auto pair = (static_cast<std::uint64_t>(from) << 32) | static_cast<std::uint64_t>(to);
  if (costs_.jitter > 0) {  // without jitter, messages are in order anyway
    Seconds& last = last_arrival_[pair];
    arrival = last = std::max(arrival, last);
  }
  events_.push({arrival, order_++, to, in_flight_.put(std::move(message)), false});
}

bool SimulatedNetwork::step(Rank& woken) {
  if (events_.empty()) return false;
  const Event event = events_.top();
  events_.pop();
  now_ = event.time;
  woken = event.to;
  if (event.to == kNoRank) {
    actions_.take(event.slot)();
    return true;
  }
  PerRank& receiver = endpoints_[static_cast<std::size_t>(event.to)];
  const Seconds taken = std::max(receiver.busy_until, now_) + costs_.overhead;
  if (!event.is_taken && taken > now_) {
    receiver.busy_until = taken;
    events_.push({taken, order_++, event.to, event.slot, true});
    woken = kNoRank;
  } else if (SimulatedTransport* transport = receiver.transport) {
    transport->arrived(in_flight_.take(event.slot));
  } else {
    throw InternalError("a message for a rank that has gone");
  }
  return true;
}

}  // namespace pyc
