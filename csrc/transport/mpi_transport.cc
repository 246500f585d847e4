#include "transport/mpi_transport.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/hot.h"

/// Functions of fault-tolerant MPI (ULFM); null if the MPI library does not have them.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" int MPIX_Comm_get_failed(MPI_Comm comm, MPI_Group* failed) __attribute__((weak));
extern "C" int MPIX_Comm_ack_failed(MPI_Comm comm, int most, int* count) __attribute__((weak));
// NOLINTEND(readability-identifier-naming)

namespace pyc {
namespace {

constexpr int kActiveTag = 0;  // tags of parts follow, on the same communicator

constexpr std::size_t kMaxHeaderBytes = 64;  // plus one bit per rank

std::atomic<int>& open_communicators() {
  static std::atomic<int> count{0};
  return count;
}

/// Held while failed ranks are queried or a communicator is freed, so that a query finds the communicator open.
std::mutex& asking_or_closing() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm parent, Rank local_ranks, std::size_t inline_bytes, std::size_t part_bytes)
    : local_ranks_(local_ranks), inline_bytes_(inline_bytes), part_bytes_(part_bytes) {
  const std::string beside = "MPI_Comm_dup, beside " + std::to_string(open_communicators()) +
                             " open communicators of pycollectives that take two of MPI's each";
  for (MPI_Comm* comm : {&heads_, &others_}) {
    check(MPI_Comm_dup(parent, comm), beside.c_str(), kNoRank);
    check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", kNoRank);
  }
  check(MPI_Comm_rank(heads_, &rank_), "MPI_Comm_rank", kNoRank);
  check(MPI_Comm_size(heads_, &size_), "MPI_Comm_size", kNoRank);
  std::random_device random;
  group_ = std::uint64_t{random()} << 32 | random();
  check(MPI_Bcast(&group_, 1, MPI_UINT64_T, 0, heads_), "MPI_Bcast", kNoRank);
  void* value = nullptr;
  int found = 0;
  // Only MPI_COMM_WORLD has this attribute.
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr", kNoRank);
  const int last = found != 0 ? *static_cast<int*>(value) : 32767;  // the minimum that MPI guarantees
  max_tag_ = last - 1 - kActiveTag;
  head_bytes_ = sizeof(Frame) + kMaxHeaderBytes + (static_cast<std::size_t>(size_) + 63) / 64 * 8 + inline_bytes_;
  head_bytes_ = std::max(head_bytes_, kMaxActiveMessage);  // active messages use the same buffers
  ++open_communicators();
}

void MpiTransport::send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload, Cookie cookie) {
  const std::uint32_t id = claim(Transfer::kSend, to, tag, cookie);
  Transfer& t = transfers_[id];
  const bool inlined = payload.size() <= inline_bytes_;
  const bool goes_in_head = inlined && has_payload && !payload.empty();
  const Frame frame{static_cast<std::uint32_t>(header.size()), has_payload ? 1U : 0U, payload.size()};
  std::size_t bytes = sizeof frame + header.size();
  if (bytes + (goes_in_head ? payload.size() : 0) > head_bytes_) throw InternalError("a message's header is too long");
  std::memcpy(t.head.get(), &frame, sizeof frame);
  if (!header.empty()) std::memcpy(t.head.get() + sizeof frame, header.data(), header.size());
  if (goes_in_head) {
    std::memcpy(t.head.get() + bytes, payload.data(), payload.size());
    bytes += payload.size();
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(t.head.get(), static_cast<int>(bytes), MPI_BYTE, to, tag, heads_, &request), "MPI_Isend", to);
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test", to);
  if (done != 0 && inlined) {
    sent_at_once_.push_back(id);
    return;
  }
  if (done == 0) add_request(request, {id, true});
  if (!inlined) {
    // MPI does not write to a send buffer. The type is not const because receives share it.
    t.payload = {const_cast<std::byte*>(payload.data()), payload.size()};
    start_parts(id, !has_payload);
  }
}

void MpiTransport::recv(Rank from, Tag tag, Bytes payload, Cookie cookie) {
  const std::uint32_t id = claim(Transfer::kRecv, from, tag, cookie);
  Transfer& t = transfers_[id];
  t.payload = payload;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(t.head.get(), static_cast<int>(head_bytes_), MPI_BYTE, from, tag, heads_, &request), "MPI_Irecv",
        from);
  add_request(request, {id, true});
  if (payload.size() > inline_bytes_) start_parts(id, false);
}

void MpiTransport::transmit_active(Rank to, ConstBytes message) {
  const std::uint32_t id = claim(Transfer::kActive, to, kActiveTag, 0);
  std::memcpy(transfers_[id].head.get(), message.data(), message.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(transfers_[id].head.get(), static_cast<int>(message.size()), MPI_BYTE, to, kActiveTag, others_,
                  &request),
        "MPI_Isend", to);
  add_request(request, {id, true});
}

std::uint32_t MpiTransport::claim(Transfer::Kind kind, Rank peer, Tag tag, Cookie cookie) {
  if (free_transfers_.empty()) {
    free_transfers_.push_back(static_cast<std::uint32_t>(transfers_.size()));
    transfers_.emplace_back();
    transfers_.back().head = std::make_unique<std::byte[]>(head_bytes_);
    free_transfers_.reserve(transfers_.size());
  }
  const std::uint32_t id = free_transfers_.back();
  free_transfers_.pop_back();
  Transfer& t = transfers_[id];
  t.kind = kind;
  t.cookie = cookie;
  t.peer = peer;
  t.tag = tag;
  t.payload = {};
  t.open = 0;
  ++open_;
  return id;
}

void MpiTransport::add_request(MPI_Request request, Owner owner) {
  requests_.push_back(request);
  owners_.push_back(owner);
  ++transfers_[owner.transfer].open;
}

/// Starts the sends or receives of a long payload. `empty`: the payload is absent, so its parts are empty.
void MpiTransport::start_parts(std::uint32_t id, bool empty) {
  const Transfer& t = transfers_[id];
  for (std::size_t offset = 0; offset < t.payload.size(); offset += part_bytes_) {
    const auto count = empty ? 0 : static_cast<int>(std::min(part_bytes_, t.payload.size() - offset));
    std::byte* const data = t.payload.data() + offset;
    MPI_Request request = MPI_REQUEST_NULL;
    if (t.kind == Transfer::kSend) {
      check(MPI_Isend(data, count, MPI_BYTE, t.peer, kActiveTag + 1 + t.tag, others_, &request), "MPI_Isend", t.peer);
    } else {
      check(MPI_Irecv(data, count, MPI_BYTE, t.peer, kActiveTag + 1 + t.tag, others_, &request), "MPI_Irecv", t.peer);
    }
    add_request(request, {id, false});
  }
}

bool MpiTransport::poll(Listener& listener) {
  bool moved = false;
  while (!sent_at_once_.empty()) {
    const std::uint32_t id = sent_at_once_.back();
    sent_at_once_.pop_back();
    request_done({id, true}, listener);
    moved = true;
  }
  // Active messages first: a probe that finds nothing drives MPI's progress and probes again, but MPI_Testsome does not
  // test again. In the other order, a message that has just arrived would be seen one nap later.
  moved = poll_active(listener) || moved;
  return poll_requests(listener) || moved;
}

bool MpiTransport::poll_requests(Listener& listener) {
  if (requests_.empty()) return false;
  indices_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int completed = 0;
  const int code =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &completed, indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS) {
    for (int i = 0; i < completed; ++i) {
      const Transfer& t = transfers_[owners_[static_cast<std::size_t>(indices_[i])].transfer];
      if (statuses_[i].MPI_ERROR != MPI_SUCCESS) check(statuses_[i].MPI_ERROR, "MPI_Testsome", t.peer);
    }
    check(code, "MPI_Testsome", kNoRank);
  }
  if (completed == MPI_UNDEFINED || completed == 0) return false;

  // Callbacks add requests, so remove the completed ones first, from the back to keep indices valid.
  completed_.clear();
  std::sort(indices_.begin(), indices_.begin() + completed);
  for (int i = completed; i-- > 0;) {
    const auto at = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
    completed_.push_back(owners_[at]);
    owners_[at] = owners_.back();
    requests_[at] = requests_.back();
    owners_.pop_back();
    requests_.pop_back();
  }
  for (const Owner& owner : completed_) {
    --transfers_[owner.transfer].open;
    request_done(owner, listener);
  }
  return true;
}

/// A request of a transfer has completed, or the transfer needed none.
void MpiTransport::request_done(Owner owner, Listener& listener) {
  Transfer& t = transfers_[owner.transfer];
  if (t.kind == Transfer::kRecv && owner.is_head) check_length(t);  // mismatched parts would never arrive
  if (t.open > 0) return;
  if (t.kind == Transfer::kSend) listener.on_sent(t.cookie);
  if (t.kind == Transfer::kRecv) {
    Frame frame;
    std::memcpy(&frame, t.head.get(), sizeof frame);
    const ConstBytes header{t.head.get() + sizeof frame, frame.header_bytes};
    const bool has_payload = frame.has_payload != 0 && !t.payload.empty();
    if (has_payload && t.payload.size() <= inline_bytes_) {
      std::memcpy(t.payload.data(), header.data() + header.size(), t.payload.size());
    }
    listener.on_received(t.cookie, header, has_payload);
  }
  --open_;
  free_transfers_.push_back(owner.transfer);
}

void MpiTransport::check_length(const Transfer& transfer) {
  Frame frame;
  std::memcpy(&frame, transfer.head.get(), sizeof frame);
  if (frame.payload_bytes == transfer.payload.size()) return;
  throw TransportError("a message of " + std::to_string(frame.payload_bytes) + " bytes from rank " +
                       std::to_string(transfer.peer) + " met a receive of " + std::to_string(transfer.payload.size()) +
                       "; the communicator is unusable now");
}

/// Probes instead of posting receives, because posted receives would have to be canceled at the end.
bool MpiTransport::poll_active(Listener& listener) {
  std::byte bytes[kMaxActiveMessage];
  bool moved = false;
  for (;;) {
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kActiveTag, others_, &found, &message, &status), "MPI_Improbe", kNoRank);
    if (found == 0) return moved;
    int length = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &length), "MPI_Get_count", status.MPI_SOURCE);
    check(MPI_Mrecv(bytes, length, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv", status.MPI_SOURCE);
    listener.on_message(status.MPI_SOURCE, {bytes, static_cast<std::size_t>(length)});
    moved = true;
  }
}

/// No rank has a message in flight.
void MpiTransport::close() {
  for (MPI_Comm* const kept : {&heads_, &others_}) {
    std::unique_lock lock(asking_or_closing());
    MPI_Comm comm = std::exchange(*kept, MPI_COMM_NULL);
    lock.unlock();
    check(MPI_Comm_free(&comm), "MPI_Comm_free", kNoRank);
  }
  --open_communicators();
}

PYC_HOT Seconds MpiTransport::now() const {
  timespec time{};  // not std::chrono: its code is in another library, which is not in the caches
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<Seconds>(time.tv_sec) + 1e-9 * static_cast<Seconds>(time.tv_nsec);
}

namespace {

/// Error classes of fault-tolerant MPI (ULFM). Other MPI libraries end the job instead.
bool means_a_failed_rank(int error_class) {
#if defined(MPI_ERR_PROC_FAILED)  // Open MPI 5
  return error_class == MPI_ERR_PROC_FAILED || error_class == MPI_ERR_PROC_FAILED_PENDING ||
         error_class == MPI_ERR_REVOKED;
#elif defined(MPIX_ERR_PROC_FAILED)  // MPICH
  return error_class == MPIX_ERR_PROC_FAILED || error_class == MPIX_ERR_PROC_FAILED_PENDING ||
         error_class == MPIX_ERR_REVOKED;
#else
  static_cast<void>(error_class);
  return false;
#endif
}

}  // namespace

std::optional<std::vector<Rank>> MpiTransport::acknowledge_failed() const {
  {
    const std::lock_guard lock(asking_or_closing());
    int has_ended = 0;
    int count = 0;
    MPI_Finalized(&has_ended);
    if (MPIX_Comm_ack_failed == nullptr || heads_ == MPI_COMM_NULL || has_ended != 0) return std::nullopt;
    if (MPIX_Comm_ack_failed(heads_, size_, &count) != MPI_SUCCESS) return std::nullopt;
  }
  return failed_ranks();
}

std::optional<std::vector<Rank>> MpiTransport::failed_ranks() const {
  const std::lock_guard lock(asking_or_closing());  // MPI need not allow concurrent queries
  int has_ended = 0;
  MPI_Finalized(&has_ended);
  if (MPIX_Comm_get_failed == nullptr || heads_ == MPI_COMM_NULL || has_ended != 0) return std::nullopt;
  int found = 0;  // MPI learns of deaths when it is called; the call may fail because of one
  MPI_Iprobe(MPI_ANY_SOURCE, kActiveTag, heads_, &found, MPI_STATUS_IGNORE);
  MPI_Group failed = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  int count = 0;
  if (MPIX_Comm_get_failed(heads_, &failed) != MPI_SUCCESS) return std::nullopt;
  if (MPI_Group_size(failed, &count) != MPI_SUCCESS) {
    MPI_Group_free(&failed);
    return std::nullopt;
  }
  if (count == 0) {
    MPI_Group_free(&failed);
    return std::vector<Rank>();
  }
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::vector<Rank> ranks(numbers.size(), MPI_UNDEFINED);
  if (MPI_Comm_group(heads_, &all) == MPI_SUCCESS) {
    MPI_Group_translate_ranks(failed, count, numbers.data(), all, ranks.data());
    MPI_Group_free(&all);
  }
  MPI_Group_free(&failed);
  std::erase(ranks, MPI_UNDEFINED);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void MpiTransport::check(int code, const char* what, Rank peer) const {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  MPI_Error_string(code, text, &length);
  const std::string said = std::string(what) + (peer == kNoRank ? "" : " (peer " + std::to_string(peer) + ")") +
                           ": error class " + std::to_string(error_class) + ", " +
                           std::string(text, static_cast<std::size_t>(length)) + "; the communicator is unusable now";
  if (means_a_failed_rank(error_class)) throw RankFailedError(said);
  throw TransportError(said);
}

namespace {

int run_action(MPI_Comm, int keyval, void* action, void*) {
  (*static_cast<std::function<void()>*>(action))();
  return MPI_Comm_free_keyval(&keyval);
}

}  // namespace

void at_mpi_finalize(std::function<void()> action) {
  // MPI_Finalize deletes the attributes of MPI_COMM_SELF first (MPI 4.1, section 11.2.4).
  int keyval = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, run_action, &keyval, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, keyval, new std::function<void()>(std::move(action)));
}

}  // namespace pyc
