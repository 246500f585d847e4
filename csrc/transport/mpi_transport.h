// Messages over MPI point-to-point, non-blocking, on communicators of its own.
//
// On the wire a message is a *head* (frame, header, and the payload if it is short) and, for a longer payload, *parts*
// of at most 1 GiB each, since MPI counts are ints. Receives of heads are posted in advance into buffers of one size; a
// head says whether parts follow, so an absent block costs one short message and nothing needs to be cancelled.
//
// Two duplicates of the user's communicator keep three streams apart: heads on one; active messages and parts, by their
// tags, on the other. MPI keeps messages with the same tag between two ranks in order. (One would do, with half of the
// tags for each; but an MPI may have only 32767.) Receives of parts are posted in the order of their heads' receives:
// MPI may tell of several heads at once, in any order.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace pyc {

class MpiTransport final : public Transport {
 public:
  /// Collective over `parent`; `local_ranks` of its ranks share this machine. `part_bytes` and `inline_bytes` must
  /// agree on all ranks.
  MpiTransport(MPI_Comm parent, Rank local_ranks, std::size_t inline_bytes = kInlineBytes,
               std::size_t part_bytes = kPartBytes);
  ~MpiTransport() override = default;

  static constexpr std::size_t kInlineBytes = 4096;
  static constexpr std::size_t kPartBytes = std::size_t{1} << 30;

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  Rank local_ranks() const override { return local_ranks_; }
  Tag max_tag() const override { return max_tag_; }
  /// A random number, the same on all ranks.
  std::uint64_t group() const { return group_; }
  void send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, Cookie cookie) override;
  void recv(Rank from, Tag tag, Bytes payload, Cookie cookie) override;
  bool poll(Listener& listener) override;
  std::size_t in_flight() const override { return open_; }
  std::optional<std::vector<Rank>> failed_ranks() const override;
  void close() override;
  Seconds now() const override;

 private:
  struct Frame {
    std::uint32_t header_bytes;
    std::uint32_t payload_is_inline;
    std::uint64_t payload_bytes;
  };

  /// A message being sent or received. Pooled; known by its index.
  struct Transfer {
    enum Kind : std::uint8_t { kSend, kRecv, kActive } kind = kSend;
    Cookie cookie = 0;
    Rank peer = 0;
    Tag tag = 0;
    Bytes payload;
    bool head_came = false;  // of a receive
    std::size_t open = 0;    // MPI requests that have not completed
    std::unique_ptr<std::byte[]> head;
  };

  void transmit_active(Rank to, ConstBytes message) override;
  std::uint32_t claim(Transfer::Kind kind, Rank peer, Tag tag, Cookie cookie);
  void add_request(MPI_Request request, std::uint32_t transfer);
  void start_parts(std::uint32_t id, std::uint64_t bytes);
  void request_done(std::uint32_t id, Listener& listener);
  void take_head(std::uint32_t id, Listener& listener);
  void finish(std::uint32_t id, Listener& listener);
  std::deque<std::uint32_t>& long_receives(Rank from, Tag tag) {
    return long_receives_[(static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32) |
                          static_cast<std::uint32_t>(tag)];
  }
  bool poll_requests(Listener& listener);
  bool poll_active(Listener& listener);
  void check(int code, const char* what, Rank peer) const;

  Rank rank_ = 0;
  Rank size_ = 0;
  Rank local_ranks_;
  Tag max_tag_ = 0;
  std::uint64_t group_ = 0;
  std::size_t inline_bytes_;
  std::size_t part_bytes_;
  std::size_t head_bytes_;
  MPI_Comm heads_ = MPI_COMM_NULL;
  MPI_Comm others_ = MPI_COMM_NULL;  // active messages and parts

  std::deque<Transfer> transfers_;  // grows while one of them is worked on
  std::vector<std::uint32_t> free_transfers_;
  std::size_t open_ = 0;

  std::vector<MPI_Request> requests_;
  std::vector<std::uint32_t> owners_;  // per request: its transfer
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<std::uint32_t> sent_at_once_;  // sends that had completed when MPI_Isend returned
  // By sender and tag: receives that parts may follow, in the order of posting, whose heads have not been taken.
  std::unordered_map<std::uint64_t, std::deque<std::uint32_t>> long_receives_;
};

/// Calls `action` at the beginning of MPI_Finalize, while MPI still works. For the life of the process.
void at_mpi_finalize(std::function<void()> action);

}  // namespace pyc
