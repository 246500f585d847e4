#include "transport/loopback.h"

#include <algorithm>
#include <chrono>
#include <deque>

namespace pyc {
namespace {

Seconds steady_now() {
  return std::chrono::duration<Seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The messages on their way to one rank, in a queue per sender so that each sender's messages stay in order.
struct Mailbox {
  struct Parcel {
    Seconds due;
    InProcessTransport::Message message;
  };
  std::mutex mutex;
  std::vector<std::deque<Parcel>> from;
};

class LoopbackTransport final : public InProcessTransport {
 public:
  LoopbackTransport(Rank rank, std::shared_ptr<std::vector<Mailbox>> mailboxes, Seconds delay, std::uint64_t seed)
      : InProcessTransport(rank, static_cast<Rank>(mailboxes->size())),
        mailboxes_(std::move(mailboxes)),
        delay_(delay),
        random_(seed + static_cast<std::uint64_t>(rank)) {}

  Seconds now() const override { return steady_now(); }

 private:
  void dispatch(Rank to, Message message) override {
    const Seconds due = delay_ > 0 ? now() + std::uniform_real_distribution<Seconds>(0, delay_)(random_) : 0;
    Mailbox& box = (*mailboxes_)[static_cast<std::size_t>(to)];
    const std::lock_guard lock(box.mutex);
    box.from[static_cast<std::size_t>(rank())].push_back({due, std::move(message)});
  }

  bool collect(Message& message) override {
    const Seconds time = delay_ > 0 ? now() : 0;
    Mailbox& box = (*mailboxes_)[static_cast<std::size_t>(rank())];
    const std::lock_guard lock(box.mutex);
    for (auto& queue : box.from) {
      if (queue.empty() || queue.front().due > time) continue;
      message = std::move(queue.front().message);
      queue.pop_front();
      return true;
    }
    return false;
  }

  std::shared_ptr<std::vector<Mailbox>> mailboxes_;
  Seconds delay_;
  std::mt19937_64 random_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_loopback(Rank size, Seconds delay, std::uint64_t seed) {
  auto mailboxes = std::make_shared<std::vector<Mailbox>>(static_cast<std::size_t>(size));
  for (Mailbox& box : *mailboxes) box.from.resize(static_cast<std::size_t>(size));
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank r = 0; r < size; ++r) transports.push_back(std::make_unique<LoopbackTransport>(r, mailboxes, delay, seed));
  return transports;
}

}  // namespace pyc
