// Typed active messages between the instances of a service on different ranks.
//
// `Mailbox<Messages...>` lists the messages of a service. A message is a struct, sent as its bytes; its kind is its
// index in the list. An empty struct takes no bytes. A struct with `using Tail = T` may be followed by as many T as
// fit. Messages between two ranks keep their order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "engine/engine.h"
#include "engine/message.h"
#include "transport/transport.h"

namespace pyc {

/// One handler for each message: `Handlers{[](Rank from, const Request& r) { ... }, ...}`.
template <class... Each>
struct Handlers : Each... {
  using Each::operator()...;
};
template <class... Each>
Handlers(Each...) -> Handlers<Each...>;

template <class Message>
concept HasTail = requires { typename Message::Tail; };

namespace mailbox {

/// One cache line, with the header. A longer list takes several messages.
inline constexpr std::size_t kLongestMessage = 64;
static_assert(kLongestMessage <= kMaxActiveMessage);

/// Bytes on the wire, without the tail.
template <class Message>
inline constexpr std::size_t kBytes = std::is_empty_v<Message> ? 0 : sizeof(Message);

template <HasTail Message>
inline constexpr std::size_t kLongestTail =
    (kLongestMessage - sizeof(MessageHeader) - kBytes<Message>) / sizeof(typename Message::Tail);

/// No byte is padding, so each sent byte has been assigned.
template <class Message>
inline constexpr bool kIsPlain = std::is_trivially_copyable_v<Message> &&
                                 (std::is_empty_v<Message> || std::has_unique_object_representations_v<Message>) &&
                                 sizeof(MessageHeader) + kBytes<Message> <= kLongestMessage;

template <class Message, class... Messages>
constexpr std::uint32_t kind_of() {
  std::uint32_t kind = 0;
  static_cast<void>(((std::is_same_v<Message, Messages> || (++kind, false)) || ...));
  return kind;
}

}  // namespace mailbox

/// First kind of the messages that all services share (service.cc).
inline constexpr std::uint32_t kFirstKindOfServices = 1U << 16U;

template <std::uint32_t First, class... Messages>
class MailboxFrom {
 public:
  static_assert((mailbox::kIsPlain<Messages> && ...));

  MailboxFrom(Engine& engine, std::uint32_t collective) : engine_(engine), collective_(collective) {}

  template <class Message>
  void send(Rank to, const Message& message) const {
    transmit(to, message, {});
  }

  /// At most `mailbox::kLongestTail<Message>` elements.
  template <HasTail Message>
  void send(Rank to, const Message& message, std::span<const typename Message::Tail> tail) const {
    static_assert(std::has_unique_object_representations_v<typename Message::Tail>);
    if (tail.size() > mailbox::kLongestTail<Message>) throw InternalError("the tail of a message is too long");
    transmit(to, message, std::as_bytes(tail));
  }

  /// Includes this rank.
  template <class Message>
  void broadcast(const Message& message) const {
    for (Rank rank = 0; rank < engine_.size(); ++rank) send(rank, message);
  }

  static bool has(ConstBytes bytes) {
    const std::uint32_t kind = read_front<MessageHeader>(bytes).kind;
    return kind >= First && kind < First + sizeof...(Messages);
  }

  /// Calls `handlers(from, message)` or, with a tail, `handlers(from, message, tail)`. Throws InternalError if no
  /// message of the list has this kind or length.
  template <class Handler>
  static void deliver(Rank from, ConstBytes bytes, Handler&& handlers) {
    const auto header = read_front<MessageHeader>(bytes);
    const ConstBytes body = bytes.subspan(sizeof header);
    std::uint32_t kind = First;
    const bool known = ((kind++ == header.kind && (decode<Messages>(from, body, handlers), true)) || ...);
    if (!known) throw InternalError("a message of unknown kind " + std::to_string(header.kind));
  }

 private:
  template <class Message>
  void transmit(Rank to, const Message& message, ConstBytes tail) const {
    constexpr std::uint32_t kKind = mailbox::kind_of<Message, Messages...>();
    static_assert(kKind < sizeof...(Messages), "this mailbox does not list this message");
    constexpr std::size_t kLength = sizeof(MessageHeader) + mailbox::kBytes<Message>;
    std::array<std::byte, mailbox::kLongestMessage> bytes;
    const MessageHeader header{collective_, First + kKind};
    std::memcpy(bytes.data(), &header, sizeof header);
    if constexpr (!std::is_empty_v<Message>) std::memcpy(bytes.data() + sizeof header, &message, sizeof message);
    std::copy(tail.begin(), tail.end(), bytes.begin() + kLength);
    engine_.transport().send_active(to, std::span(bytes).first(kLength + tail.size()));
  }

  template <class Message, class Handler>
  static void decode(Rank from, ConstBytes body, Handler& handlers) {
    constexpr std::size_t kLength = mailbox::kBytes<Message>;
    Message message{};
    if constexpr (!std::is_empty_v<Message>) message = read_front<Message>(body);
    const ConstBytes rest = body.subspan(kLength);
    if constexpr (HasTail<Message>) {
      using Tail = typename Message::Tail;
      std::array<Tail, mailbox::kLongestTail<Message>> tail;
      const std::size_t length = rest.size() / sizeof(Tail);
      if (rest.size() % sizeof(Tail) != 0 || length > tail.size()) throw wrong_length(body);
      std::memcpy(tail.data(), rest.data(), rest.size());
      handlers(from, message, std::span<const Tail>(tail).first(length));
    } else {
      if (!rest.empty()) throw wrong_length(body);
      handlers(from, message);
    }
  }

  Engine& engine_;
  std::uint32_t collective_;
};

template <class... Messages>
using Mailbox = MailboxFrom<0, Messages...>;

}  // namespace pyc
