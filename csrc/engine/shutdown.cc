#include "engine/shutdown.h"

#include <utility>

#include "core/error.h"
#include "core/patterns.h"

namespace pyc {

Shutdown::Shutdown(Rank rank, Rank size, SendControl send, std::function<Traffic()> traffic)
    : send_(std::move(send)), traffic_(std::move(traffic)), parent_(kNoRank) {
  const BinomialTree tree(rank, size);
  if (!tree.is_root()) parent_ = tree.parent();
  children_ = tree.children();
}

void Shutdown::close() {
  if (std::exchange(closed_, true)) return;
  report_closed();
}

/// Reports once this rank and its subtree have closed.
void Shutdown::report_closed() {
  if (!closed_ || reports_ < children_.size()) return;
  if (parent_ == kNoRank) {
    fall_silent();
  } else {
    send(parent_, Control::kClosed, {});
  }
}

void Shutdown::fall_silent() {
  silent_ = true;
  send_down(Control::kAllClosed);
  count();
}

void Shutdown::count() {
  reports_ = 0;
  below_ = {};
  report_count();
}

/// Reports once the subtree has counted.
void Shutdown::report_count() {
  if (reports_ < children_.size()) return;
  Traffic all = traffic_();
  all.sent += below_.sent;
  all.received += below_.received;
  if (parent_ != kNoRank) return send(parent_, Control::kCounts, all);
  must_count_ = all.sent != all.received;
  if (!must_count_) end();
}

/// Not within `report_count`: a root without children would find the same numbers at once.
bool Shutdown::advance() {
  if (!must_count_) return false;
  must_count_ = false;
  send_down(Control::kCountAgain);
  count();
  return !must_count_ || !children_.empty();
}

void Shutdown::end() {
  send_down(Control::kEnd);
  ended_ = true;
}

void Shutdown::on_message(Control kind, ConstBytes bytes) {
  const auto message = read<Message>(bytes);
  switch (kind) {
    case Control::kClosed:
      ++reports_;
      return report_closed();
    case Control::kAllClosed:
      return fall_silent();
    case Control::kCounts:
      ++reports_;
      below_.sent += message.sent;
      below_.received += message.received;
      return report_count();
    case Control::kCountAgain:
      send_down(Control::kCountAgain);
      return count();
    case Control::kEnd:
      return end();
    default:
      throw InternalError("a message that is none of the shutdown");
  }
}

void Shutdown::send(Rank to, Control kind, const Traffic& traffic) {
  ++sent_;
  send_(to, bytes_of(Message{control(kind), traffic.sent, traffic.received}));
}

void Shutdown::send_down(Control kind) {
  for (const Rank child : children_) send(child, kind, {});
}

}  // namespace pyc
