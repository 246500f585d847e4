#include "transport/in_process.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"

namespace pyc {
namespace {

std::vector<std::byte> copy_of(ConstBytes bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

void InProcessTransport::send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload,
                              Cookie cookie) {
  dispatch(to, {rank_, tag, false, copy_of(header), has_payload ? copy_of(payload) : std::vector<std::byte>()});
  sent_.push_back(cookie);
}

void InProcessTransport::transmit_active(Rank to, ConstBytes message) {
  dispatch(to, {rank_, 0, true, copy_of(message), {}});
}

void InProcessTransport::recv(Rank from, Tag tag, Bytes payload, Cookie cookie) {
  ++posted_count_;
  Queue& q = queue(from, tag);
  if (q.unexpected.empty()) {
    q.posted.push_back({payload, cookie});
    return;
  }
  matched_.emplace_back(std::move(q.unexpected.front()), Posted{payload, cookie});
  q.unexpected.pop_front();
}

bool InProcessTransport::poll(Listener& listener) {
  bool moved = false;
  // Callbacks of the listener start new sends and receives. Report only those that have completed before.
  for (const Cookie cookie : std::exchange(sent_, {})) {
    listener.on_sent(cookie);
    moved = true;
  }
  for (const auto& [message, posted] : std::exchange(matched_, {})) {
    --posted_count_;
    deliver(message, posted, listener);
    moved = true;
  }
  Message message;
  while (collect(message)) {
    moved = true;
    if (message.is_active) {
      listener.on_message(message.from, message.header);
      continue;
    }
    Queue& q = queue(message.from, message.tag);
    if (q.posted.empty()) {
      q.unexpected.push_back(std::move(message));
      continue;
    }
    const Posted posted = q.posted.front();
    q.posted.pop_front();
    --posted_count_;
    deliver(message, posted, listener);
  }
  return moved;
}

void InProcessTransport::deliver(const Message& message, const Posted& posted, Listener& listener) {
  if (!message.payload.empty()) {
    if (message.payload.size() != posted.payload.size()) {
      throw TransportError("a message of " + std::to_string(message.payload.size()) + " bytes from rank " +
                           std::to_string(message.from) + " met a receive of " + std::to_string(posted.payload.size()));
    }
    std::copy(message.payload.begin(), message.payload.end(), posted.payload.begin());
  }
  listener.on_received(posted.cookie, message.header, !message.payload.empty());
}

}  // namespace pyc
