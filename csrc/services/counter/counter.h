// A counter that all ranks share. It is in the memory of rank 0's node. The ranks of that node add to it in place; the
// others ask rank 0, whose engine answers, whatever its application does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/mailbox.h"
#include "services/common/service.h"

namespace pyc {

namespace counter {

struct Add {
  std::uint64_t sequence;  ///< of the sender's requests, from 1
  std::uint64_t n;
};
struct Answer {
  std::uint64_t sequence;
  std::uint64_t before;
};
struct Left {};
using Messages = Mailbox<Add, Answer, Left>;

}  // namespace counter

class SharedCounter final : public Service {
 public:
  static constexpr std::uint64_t kMostAtOnce = std::uint64_t{1} << 31U;
  static constexpr std::uint64_t kLastStart = std::uint64_t{1} << 62U;  ///< leaves room for 2^31 additions

  /// Collective over the engine's ranks; the ranks of a node must share a machine. Throws StallError like
  /// `Engine::compare`, and std::runtime_error on all ranks if one cannot allocate memory. The result keeps the engine
  /// alive.
  static std::shared_ptr<SharedCounter> create(std::shared_ptr<Engine> engine, std::string name, std::uint64_t start,
                                               const Nodes& nodes, Seconds timeout, const Engine::Interrupt& interrupt);
  /// For ranks in one thread: see Service::joined.
  static std::shared_ptr<SharedCounter> join(std::shared_ptr<Engine> engine, std::string name, std::uint64_t start,
                                             const Nodes& nodes, std::shared_ptr<SharedMemory>& shared);

  // ---- the application: one thread at a time

  /// Adds `n`, at most kMostAtOnce, and returns the value before. After `timeout` seconds (negative: unlimited) it
  /// throws StallError; the same call may then be repeated. Another `n` then throws std::invalid_argument.
  std::uint64_t fetch_add(std::uint64_t n, Seconds timeout, const Engine::Interrupt& interrupt);
  /// The same in two steps that do not wait. `take` needs the answer.
  void ask(std::uint64_t n);
  bool has_answer() const { return answered_.load() == asked_; }
  std::uint64_t take();

  // ---- after a death

  /// The newest request of a rank that rank 0 has served. Zeros if there is none.
  struct Served {
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint64_t> before{0};
  };
  /// The counter as this rank knows it: exact on rank 0's node, elsewhere at most the true value.
  std::uint64_t known() const;
  /// Sequence and answer, by rank; empty on other nodes.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> served() const;
  struct Request {
    std::uint64_t sequence;
    std::uint64_t n;
    std::optional<std::uint64_t> before;  ///< the answer, if it has arrived
  };
  /// This rank's request whose answer no call has returned.
  std::optional<Request> request() const;

  // ---- Collective

  bool advance() override { return false; }
  bool busy() const override { return has_waiting(rank()); }
  bool in_background() const override { return rank() == kHome && !elsewhere_.empty(); }
  bool finished() const override;
  std::vector<Rank> not_closed() const override;

 private:
  static constexpr Rank kHome = 0;

  /// In the memory of rank 0's node, before a `Served` for each rank.
  struct alignas(64) Head {
    std::atomic<std::uint64_t> value{0};
  };

  SharedCounter(Engine& engine, std::string name, std::uint64_t start, const Nodes& nodes);

  OnNode on_node();
  bool is_at_home() const { return is_local(kHome); }
  std::size_t ranks() const { return static_cast<std::size_t>(engine_->size()); }
  std::atomic<std::uint64_t>& value() const { return reinterpret_cast<Head*>(memory_.get())->value; }
  Served* served_of_all() const { return reinterpret_cast<Served*>(memory_.get() + sizeof(Head)); }
  counter::Messages mailbox() const { return {*engine_, id()}; }

  void receive(Rank from, ConstBytes message) override;
  void serve(Rank by, const counter::Add& request);
  void tell_closed() override;
  std::optional<Report> progress(std::uint64_t) const override { return std::nullopt; }

  const std::uint64_t start_;
  const std::vector<Rank> elsewhere_;  // ranks of other nodes than rank 0's
  std::vector<bool> has_left_;         // of them, by rank; on rank 0
  std::shared_ptr<std::byte> memory_;  // of this node; empty where rank 0 is not
  // On other nodes:
  std::uint64_t known_;                  // the counter after the newest returned answer
  std::uint64_t n_ = 0;                  // of the newest request
  bool is_taken_ = true;                 // its answer has been returned
  std::uint64_t before_ = 0;             // its answer; written before `answered_`
  std::atomic<std::uint64_t> asked_{0};  // sequence of the newest request
  std::atomic<std::uint64_t> answered_{0};
};

}  // namespace pyc
