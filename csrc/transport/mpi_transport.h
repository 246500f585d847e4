// Messages over non-blocking MPI point-to-point communication, on communicators of its own.
//
// A message is a *head* (frame, header, and the payload if it is short). A long payload follows in *parts* of at most 1
// GiB, since MPI counts are ints. A receive posts head and parts together, so that MPI answers a sender of long data at
// once. If it posted the parts after the head arrived, the answer would queue behind this rank's own sends, and over
// TCP the two directions of an exchange would follow one another (two hosts at 100 Mbit/s, 1 MB: 150 ms instead of 77).
// Parts of an absent block are sent empty, so that no receive must be canceled.
//
// Two duplicates of the user's communicator separate three streams: heads use one; active messages and parts use the
// other, with different tags. (One communicator would leave half of the tags to each, and an MPI may have only 32767.)
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
  /// Collective over `parent`, with the same `part_bytes` and `inline_bytes`. `local_ranks` ranks share this machine.
  MpiTransport(MPI_Comm parent, Rank local_ranks, std::size_t inline_bytes = kInlineBytes,
               std::size_t part_bytes = kPartBytes);
  ~MpiTransport() override = default;

  static constexpr std::size_t kInlineBytes = 4096;
  static constexpr std::size_t kPartBytes = std::size_t{1} << 30;

  Rank rank() const override { return rank_; }
  Rank size() const override { return size_; }
  Rank local_ranks() const override { return local_ranks_; }
  Tag max_tag() const override { return max_tag_; }
  /// The duplicate that carries heads, with tags up to `max_tag`. Null once it is closed.
  MPI_Comm duplicate() const { return heads_; }
  /// A random number that identifies the communicator, the same on all ranks.
  std::uint64_t group() const { return group_; }
  void send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload, Cookie cookie) override;
  void recv(Rank from, Tag tag, Bytes payload, Cookie cookie) override;
  bool poll(Listener& listener) override;
  std::size_t in_flight() const override { return open_; }
  std::optional<std::vector<Rank>> failed_ranks() const override;
  /// Also acknowledges the failures, so that MPI delivers messages of the other ranks on `duplicate` again.
  std::optional<std::vector<Rank>> acknowledge_failed() const;
  void close() override;
  Seconds now() const override;

 private:
  struct Frame {
    std::uint32_t header_bytes;
    std::uint32_t has_payload;    // 0: the block is absent
    std::uint64_t payload_bytes;  // bytes of the posted receive, sent or not
  };

  /// A message being sent or received. Pooled, and identified by its index.
  struct Transfer {
    enum Kind : std::uint8_t { kSend, kRecv, kActive } kind = kSend;
    Cookie cookie = 0;
    Rank peer = 0;
    Tag tag = 0;
    Bytes payload;
    std::size_t open = 0;  // pending MPI requests
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

  std::deque<Transfer> transfers_;  // a deque keeps references valid while it grows
  std::vector<std::uint32_t> free_transfers_;
  std::size_t open_ = 0;

  std::vector<MPI_Request> requests_;
  std::vector<Owner> owners_;     // per request
  std::vector<Owner> completed_;  // by one poll
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<std::uint32_t> sent_at_once_;  // sends that were complete at once
};

/// Calls `action` at the start of MPI_Finalize, while MPI still works. `action` lives as long as the process.
void at_mpi_finalize(std::function<void()> action);

}  // namespace pyc
