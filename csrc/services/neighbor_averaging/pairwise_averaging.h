// Asynchronous averaging in pairs (AD-PSGD, Algorithm 1), as the application of one rank sees it.
//
// This object owns the model. In the background, a rank averages it with one neighbor at a time. The application reads
// it and adds to it at any time, without waiting for other ranks. Neighbors on the node are averaged in shared memory
// (model_board.h), others by messages (message_average.h). Models are in host memory or on devices (models.h).
//
// Neighbors that have left or died are skipped. The application's next call raises a death once. If the engine has
// failed, averages on the node continue, begun by the application's calls. If a rank's device fails, its calls raise
// that error, and its neighbors raise it once and skip the rank.
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
  bool initiates = true;  ///< whether it requests averages of ranks on other nodes
  bool random = true;     ///< choose neighbors at random; otherwise in rotation
  std::uint64_t seed = 0;
  bool per_step = false;  ///< begin one average for each call of `apply`; otherwise continuously
  Seconds period = 0;     ///< minimum between two beginnings; 0: depends on their duration
  std::optional<Acceleration> acceleration;
  bool by_frequency = false;  ///< weigh applied changes by the time between calls (Importance)
};

struct PairwiseStatistics {
  std::uint64_t begun = 0;  ///< averages begun by this rank
  std::uint64_t begun_between_nodes = 0;
  std::uint64_t averages = 0;  ///< averages that its model was in
  std::uint64_t declined = 0;  ///< requests
  std::uint64_t skipped = 0;   ///< segments or pieces that were locked or lent
  std::uint64_t applied = 0;
  std::uint64_t staleness_sum = 0;  ///< averages between a read and the next apply
  std::uint64_t staleness_max = 0;
  Seconds waited = 0;  ///< for locks, in `read` and `apply`
};

class PairwiseAveraging final : public Service {
 public:
  using Options = PairwiseOptions;
  using OpenDevice = std::function<std::shared_ptr<Executor>()>;

  /// Collective over the engine's ranks. The ranks of a node must share a machine. `initial`: own model. StallError as
  /// `Engine::compare`; std::runtime_error on all ranks if memory cannot be allocated on one. The result keeps the
  /// engine alive.
  /// `open_device`: for models on devices. `initial` and the arrays of `read` and `apply` are then in this rank's
  /// device memory; other calls use host memory. It returns the device, once `initial` has its values there. Its
  /// exceptions are errors on all ranks.
  static std::shared_ptr<PairwiseAveraging> create(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                   const std::byte* initial, const Nodes& nodes, Seconds timeout,
                                                   const Engine::Interrupt& interrupt,
                                                   const OpenDevice& open_device = {});
  /// `create` if one thread has all ranks: Service::joined.
  static std::shared_ptr<PairwiseAveraging> join(std::shared_ptr<Engine> engine, Memory& memory, Options options,
                                                 const std::byte* initial, const Nodes& nodes,
                                                 std::shared_ptr<SharedMemory>& shared);
  /// std::invalid_argument if the messages need too many tags.
  static void check(Engine& engine, const Options& options);
  ~PairwiseAveraging() override;

  // ---- the application: from any thread

  /// Copies this rank's model. Each segment is consistent.
  void read(std::byte* out, const Engine::Interrupt& interrupt);
  /// The value whose sum averages preserve (models.h), in the type it is held in: float32 or float64.
  void read_kept(std::byte* out, const Engine::Interrupt& interrupt);
  /// `read_kept` at any time, without checks for failures.
  void peek_kept(std::byte* out) const {
    board_->read_kept(options_.count, out, [] {});
  }
  /// model += delta. Before it changes anything, raises each failure once: RankFailedError for a neighbor's death,
  /// std::runtime_error for a neighbor's failed device.
  void apply(const std::byte* delta, const Engine::Interrupt& interrupt);
  /// model = values, in the held type, plus the changes since `read_kept` returned `before`. Call `pause` first, so
  /// that averages cannot interfere.
  void replace_held(const std::byte* before, const std::byte* values, const Engine::Interrupt& interrupt);

  /// Until `resume`, this rank begins no average and accepts none; waits for the current one. Ranks of its node that
  /// are not paused may still average with it.
  void pause(Seconds timeout, const Engine::Interrupt& interrupt);
  void resume();

  /// The application knows of these deaths, or, if there are none, of one without a known rank. No call raises them
  /// again.
  void set_told(const std::vector<Rank>& dead);

  // After `close` the model is not averaged.

  /// Runs `call`. A DeviceError is noted, and ends this rank's part.
  template <class Call>
  auto on_device(Call call) {
    try {
      return call();
    } catch (const DeviceError& error) {
      note_failure(error.what());
      throw;
    }
  }
  void check_device() const;
  void check_usable() override { check_device(); }  // continues without dead ranks

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
  void name_the_dead() const override {}  // calls raise deaths and continue

 private:
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
  OnNode on_node(const std::byte* initial, const OpenDevice& open_device);
  void make_board(const std::shared_ptr<std::byte>& shared, std::size_t own_bytes, std::shared_ptr<Executor> device,
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
  std::shared_ptr<std::byte[]> sent_;  // for `messages_`
  std::unique_ptr<PairwiseMailbox> mailbox_;
  std::unique_ptr<MessageAverage> messages_;  // if there are neighbors on other nodes

  // Under the progress lock.
  NeighborChoice choice_;
  std::optional<NodeAverage> on_node_;
  Seconds requested_ = 0;  // time of the newest request by messages
  Seconds next_ = 0;       // earliest begin of the next average
  Seconds refusal_rest_;
  SplitMix random_;
  RankSet left_;
  bool is_failure_announced_ = false;  // failure of this rank's device

  // From any thread.
  std::mutex importance_mutex_;
  std::atomic<std::thread::id> measuring_;  // the thread that holds it
  Importance importance_;
  std::atomic<std::uint64_t> owed_{0};  // averages, with per_step
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<std::uint64_t> begun_between_nodes_{0};
  std::atomic<std::uint64_t> declined_{0};
  std::atomic<std::uint64_t> skipped_{0};  // segments on the node
  std::atomic<std::uint64_t> applied_{0};
  std::atomic<std::uint64_t> read_at_{0};  // averages of this model before the last read
  std::atomic<std::uint64_t> staleness_sum_{0};
  std::atomic<std::uint64_t> staleness_max_{0};
  std::atomic<bool> paused_{false};

  std::vector<std::atomic<bool>> gone_;           // by rank: its process has ended before it left
  std::vector<std::atomic<bool>> device_failed_;  // by rank, for ranks on other nodes
  std::vector<std::atomic<bool>> told_;           // by rank: a call has raised its failure
  std::atomic<bool> told_failure_{false};
  std::atomic<bool> failed_{false};  // the engine has failed
  std::atomic<Seconds> next_look_{0};
  std::atomic<Seconds> next_tell_{0};
};

}  // namespace pyc
