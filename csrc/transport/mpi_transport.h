// Messages over MPI point-to-point, non-blocking, on communicators of its own.
//
// On the wire a message is a *head* (frame, header, and the payload if it is short) and, if its receive is posted with
// more bytes than are short, *parts* of at most 1 GiB each, since MPI counts are ints. A receive posts its head and its
// parts together: MPI then answers at once who wants to send long data. Posted once the head had come, the answer would
// stand in line behind what this rank sends, and over TCP the two directions of an exchange follow one another (two
// hosts at 100 Mbit/s, 1 MB: 150 ms instead of 77). Parts of an absent block are sent empty, so that nothing needs to
// be cancelled.
//
// Two duplicates of the user's communicator keep three streams apart: heads on one; active messages and parts, by their
// tags, on the other. MPI keeps messages with the same tag between two ranks in order. (One would do, with half of the
// tags for each; but an MPI may have only 32767.)
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
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
  /// One of the two duplicates, null once it is closed: its messages have tags up to `max_tag`.
  MPI_Comm duplicate() const { return heads_; }
  /// A random number, the same on all ranks.
  std::uint64_t group() const { return group_; }
  void send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload, Cookie cookie) override;
  void recv(Rank from, Tag tag, Bytes payload, Cookie cookie) override;
  bool poll(Listener& listener) override;
  std::size_t in_flight() const override { return open_; }
  std::optional<std::vector<Rank>> failed_ranks() const override;
  /// The same; afterwards MPI lets the others' messages through on `duplicate`.
  std::optional<std::vector<Rank>> acknowledge_failed() const;
  void close() override;
  Seconds now() const override;

 private:
  struct Frame {
    std::uint32_t header_bytes;
    std::uint32_t has_payload;    // 0: the block is absent
    std::uint64_t payload_bytes;  // that the receive must be posted with, sent or not
  };

  /// A message being sent or received. Pooled; known by its index.
  struct Transfer {
    enum Kind : std::uint8_t { kSend, kRecv, kActive } kind = kSend;
    Cookie cookie = 0;
    Rank peer = 0;
    Tag tag = 0;
    Bytes payload;
    std::size_t open = 0;  // MPI requests that have not completed
    std::unique_ptr<std::byte[]> head;
  };

  struct Owner {  // of an MPI request
    std::uint32_t transfer;
    bool is_head;
  };

  void transmit_active(Rank to, ConstBytes message) override;
  std::uint32_t claim(Transfer::Kind kind, Rank peer, Tag tag, Cookie cookie);
  void add_request(MPI_Request request, Owner owner);
  void start_parts(std::uint32_t id, bool empty);
  void request_done(Owner owner, Listener& listener);
  static void check_length(const Transfer& transfer);
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
  std::vector<Owner> owners_;     // per request
  std::vector<Owner> completed_;  // of one poll
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<std::uint32_t> sent_at_once_;  // sends that had completed when MPI_Isend returned
};

/// Calls `action` at the beginning of MPI_Finalize, while MPI still works. For the life of the process.
void at_mpi_finalize(std::function<void()> action);

}  // namespace pyc
