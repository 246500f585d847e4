// Active messages as bytes: their common header, and the conversion from and to structs. A message whose length is not
// the length of its struct throws InternalError.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "core/error.h"
#include "transport/transport.h"

namespace pyc {

/// Every active message begins with this. Collective 0 is the engine itself.
struct MessageHeader {
  std::uint32_t collective;
  std::uint32_t kind;
};

template <class Message>
ConstBytes bytes_of(const Message& message) {
  static_assert(sizeof(Message) <= kMaxActiveMessage);
  return std::as_bytes(std::span(&message, 1));
}

inline InternalError wrong_length(ConstBytes bytes) {
  return InternalError("a message has the wrong length: " + std::to_string(bytes.size()) + " bytes");
}

/// Reads the message at the front of `bytes`, which may have more bytes behind it.
template <class Message>
Message read_front(ConstBytes bytes) {
  static_assert(std::is_trivially_copyable_v<Message>);
  Message message;
  if (bytes.size() < sizeof message) throw wrong_length(bytes);
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

/// Reads the message that fills `bytes`.
template <class Message>
Message read(ConstBytes bytes) {
  if (bytes.size() > sizeof(Message)) throw wrong_length(bytes);
  return read_front<Message>(bytes);
}

}  // namespace pyc
