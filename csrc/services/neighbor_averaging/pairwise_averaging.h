// Asynchronous averaging in pairs (AD-PSGD, Algorithm 1): what the application of one rank sees of it.
//
// The model lives here. In the background a rank averages it with one neighbor at a time; the application reads it and
// adds to it whenever it likes, and waits for no other rank. Neighbors of this node are averaged in shared memory
// (model_board.h), others by messages (message_average.h). Models are in memory of the host or on devices (models.h).
//
// A neighbor that has left or died is passed over. A death is told once, by the application's next call; what is shared
// on the node goes on working then, though the engine may not: the application's calls begin averages themselves. If a
// rank's device fails, its calls throw what it was; its neighbors are told once too, and pass it over.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/rank_set.h"
#include "core/splitmix.h"
#include "memory/executor.h"
#include "services/common/service.h"
#include "services/neighbor_averaging/device_models.h"
#include "services/neighbor_averaging/importance.h"
#include "services/neighbor_averaging/message_average.h"
#include "services/neighbor_averaging/model_board.h"
#include "services/neighbor_averaging/neighbor_choice.h"
#include "services/neighbor_averaging/pairwise_messages.h"

namespace pyc {

struct PairwiseOptions {
  std::string name;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;  ///< a float type; 16-bit models are held in float32
  std::size_t segment_bytes = 0;       ///< 0: the model is one segment
  std::vector<Rank> neighbors;
  bool initiates = true;  ///< requests averages of other nodes
  bool random = true;     ///< which neighbor is next; else one after the other
  std::uint64_t seed = 0;
  bool per_step = false;  ///< as many averages are begun as calls of `apply`; else continuously
  Seconds period = 0;     ///< between the beginnings of two, at least; 0: by how long they take
  std::optional<Acceleration> acceleration;
  bool by_frequency = false;  ///< what a rank applies counts in proportion to the time between its calls
};

struct PairwiseStatistics {
  std::uint64_t begun = 0;  ///< averages that this rank began
  std::uint64_t begun_between_nodes = 0;
  std::uint64_t averages = 0;  ///< averages that its model was in
  std::uint64_t declined = 0;  ///< requests
  std::uint64_t skipped = 0;   ///< segments or pieces that were locked, or lent
  std::uint64_t applied = 0;
  std::uint64_t staleness_sum = 0;  ///< averages between a read and the apply after it
  std::uint64_t staleness_max = 0;
  Seconds waited = 0;  ///< for locks, in `read` and `apply`
};

class PairwiseAveraging final : public Service {
 public:
  using Options = PairwiseOptions;
  using OpenDevice = std::function<std::shared_ptr<Executor>()>;

  /// Collective over the engine's ranks; those of a node must share a machine. `initial`: this rank's model. StallError
  /// as `Engine::compare`; std::runtime_error on all ranks if the memory cannot be had on one. The result keeps the
  /// engine alive.
  static std::shared_ptr<PairwiseAveraging> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                   const std::byte* initial, const Nodes& nodes, Seconds timeout,
                                                   const Engine::Interrupt& interrupt);
  /// The same of models on devices: `initial` is memory of this rank's device, and so is what `read` and `apply` are
  /// given; all others are given memory of the host. `open` gives the device, where `initial` has its values; what it
  /// throws is an error on all ranks.
  static std::shared_ptr<PairwiseAveraging> create_on_device(std::shared_ptr<Engine> engine, const OpenDevice& open,
                                                             Options options, const std::byte* initial,
                                                             const Nodes& nodes, Seconds timeout,
                                                             const Engine::Interrupt& interrupt);
  /// As `create`, where all ranks are in one thread: Service::joined.
  static std::shared_ptr<PairwiseAveraging> join(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                 const std::byte* initial, const Nodes& nodes,
                                                 std::shared_ptr<SharedMemory>& shared);
  /// std::invalid_argument if its messages need too many tags.
  static void check(Engine& engine, const Options& options);
  ~PairwiseAveraging() override;

  // ---- the application: from any thread

  /// A copy of this rank's model, each segment as it was at one moment.
  void read(std::byte* out, const Engine::Interrupt& interrupt);
  /// What averages keep the sum of (model_board.h), as it is held: float32 or float64.
  void read_kept(std::byte* out, const Engine::Interrupt& interrupt);
  /// The same at any time, without a look at what has failed.
  void peek_kept(std::byte* out) const {
    board_->read_kept(options_.count, out, [] {});
  }
  /// model += delta. Once for each, before anything is changed: RankFailedError of a death of a neighbor,
  /// std::runtime_error of a neighbor's device that has failed.
  void apply(const std::byte* delta, const Engine::Interrupt& interrupt);
  /// model = values, as held, plus what has been applied since `read_kept` gave `before`. No averages may be under way:
  /// see `pause`.
  void replace_held(const std::byte* before, const std::byte* values, const Engine::Interrupt& interrupt);

  /// This rank begins no average and takes part in none, until `resume`; waits for the one that is under way. Another
  /// rank of its node that is not paused may still average with it.
  void pause(Seconds timeout, const Engine::Interrupt& interrupt);
  void resume();

  /// The application knows of these deaths, or of one that nobody could name: no call tells it again.
  void set_told(const std::vector<Rank>& dead);

  // After `close` its model is averaged no more.

  /// Runs what a call does on the device. What the device reports is noted, and ends this rank's part.
  template <class Call>
  auto on_device(Call call) {
    try {
      return call();
    } catch (const DeviceError& error) {
      note_failure(error.what());
      throw;
    }
  }
  /// DeviceError if that has happened.
  void check_device() const;
  void check_usable() override { check_device(); }  // it goes on without the dead

  PairwiseStatistics statistics();
  const Options& options() const { return options_; }
  DataType held_type() const { return elements_.accumulator; }

  // ---- Collective

  bool advance() override;
  bool busy() const override { return messages_ && !messages_->idle(); }
  Seconds deadline() const override;
  bool finished() const override;
  std::vector<Rank> not_closed() const override { return left_.missing(engine_->size()); }
  void on_engine_failure(const std::exception_ptr& error) override;
  void name_the_dead() const override {}  // a call says who died, and goes on

 private:
  /// An average with a neighbor of this node that is under way.
  struct NodeAverage {
    Rank with;
    std::size_t local;
    Seconds begun;
    std::size_t next_segment = 0;
    bool averaged = false;
  };

  static constexpr Seconds kFirstRefusalRest = 2e-4;  // doubled with each refusal in a row

  PairwiseAveraging(Engine& engine, Memory& memory, Options options, const Nodes& nodes);

  static ModelShape shape_of(const Options& options);
  static std::size_t held_count(const Options& options);
  OnNode on_host(const std::byte* initial);
  void make_on_host(const std::shared_ptr<std::byte>& shared, const std::byte* initial);
  void make_on_device(const std::shared_ptr<std::byte>& shared, std::shared_ptr<Executor> executor,
                      const std::byte* initial);
  void make_board(std::unique_ptr<Models> models, std::vector<std::shared_ptr<std::byte>> boards,
                  const std::byte* initial);
  bool has_neighbors_elsewhere() const;
  void open() override;
  void tell_closed() override;
  void receive(Rank from, ConstBytes message) override;
  std::optional<Report> progress(std::uint64_t) const override { return std::nullopt; }

  class Deferred;
  ModelBoard::WhileWaiting while_waiting(const Engine::Interrupt& interrupt) const;
  std::string awaited_lock() const;
  double weight_of_call(const ModelBoard::WhileWaiting& waiting);
  void count_application();
  void set_paused(bool paused);

  bool is_over() const;
  bool may_begin(Seconds now) const;
  bool is_available(Rank neighbor) const;
  bool begin(Seconds now);
  bool advance_on_node(std::size_t bytes);
  void conclude(const MessageAverage::Ended& ended, Seconds now);
  void took_turn(Rank neighbor);
  void count(const NodeAverage& average);
  void rest(Seconds now, Seconds duration);
  void rest_after_refusal(Seconds now, Seconds begun);
  double jitter();
  MessageAverage& exchange();

  void before_call();
  void look_at_neighbors(Seconds now);
  bool is_gone(Rank neighbor);
  bool has_failed_device(Rank rank) const;
  std::string device_failure(Rank rank) const;
  void note_failure(const std::string& text);
  void announce_failure();
  void tell_failed_devices();
  void tell_deaths();
  void tell(std::vector<Rank> dead);
  void tell_failure();
  void average_without_engine();

  Memory& memory_;
  const Options options_;
  const Elements elements_;
  std::unique_ptr<Models> models_;
  DeviceModels* device_ = nullptr;  // `models_`, if they are on devices
  std::unique_ptr<ModelBoard> board_;
  std::shared_ptr<std::byte[]> sent_;  // for messages_
  std::unique_ptr<PairwiseMailbox> mailbox_;
  std::unique_ptr<MessageAverage> messages_;  // if there are neighbors on other nodes

  // Under the progress lock.
  NeighborChoice choice_;
  std::optional<NodeAverage> on_node_;
  Seconds requested_ = 0;  // the newest average by messages
  Seconds next_ = 0;       // when the next one may begin
  Seconds refusal_rest_;
  SplitMix random_;
  RankSet left_;
  bool is_failure_announced_ = false;  // of this rank's device

  // Of any thread.
  std::mutex importance_mutex_;
  std::atomic<std::thread::id> measuring_;  // holds it
  Importance importance_;
  std::atomic<std::uint64_t> owed_{0};  // averages, per step
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> begun_between_nodes_{0};
  std::atomic<std::uint64_t> declined_{0};
  std::atomic<std::uint64_t> skipped_{0};  // segments on the node
  std::atomic<std::uint64_t> applied_{0};
  std::atomic<std::uint64_t> read_at_{0};  // in how many averages its model had been
  std::atomic<std::uint64_t> staleness_sum_{0};
  std::atomic<std::uint64_t> staleness_max_{0};
  std::atomic<bool> paused_{false};

  std::vector<std::atomic<bool>> gone_;           // by rank: its process has ended, and it had not left
  std::vector<std::atomic<bool>> device_failed_;  // by rank, of those on other nodes
  std::vector<std::atomic<bool>> told_;           // by rank: a call has said so
  std::atomic<bool> told_failure_{false};
  std::atomic<bool> failed_{false};  // the engine
  std::atomic<Seconds> next_look_{0};
  std::atomic<Seconds> next_tell_{0};
};

}  // namespace pyc
