// In _testing: the memory's kernels, for comparison with NumPy, and parts without an engine: the flight recorder, the
// group board, a slot of Hop's update queues, and the posts of direct rounds.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/testing.h"
#include "core/error.h"
#include "diagnostics/flight_recorder.h"
#include "engine/engine.h"
#include "memory/memory.h"
#include "node/robust_mutex.h"
#include "node/shared_memory.h"
#include "services/common/mailbox.h"
#include "services/hop/update_slot.h"
#include "services/partial_allreduce/board_posts.h"
#include "services/partial_reduce/device_slots.h"
#include "services/partial_reduce/group_board.h"
#include "services/partial_reduce/host_slots.h"
#include "transport/loopback.h"

namespace pyc {
namespace {

const char* format_of(DataType type) {
  constexpr const char* formats[kDataTypes] = {"f2", "u2", "f4", "f8", "i1", "i2",  "i4", "i8",
                                               "u1", "u2", "u4", "u8", "c8", "c16", "b1"};  // bfloat16 as its bits
  return formats[static_cast<std::size_t>(type)];
}

py::array new_array(const char* format, std::size_t count) {
  return py::array(py::dtype(format), std::vector<py::ssize_t>{static_cast<py::ssize_t>(count)});
}
std::byte* bytes(py::array& array) { return static_cast<std::byte*>(array.mutable_data()); }
const std::byte* bytes(const py::array& array) { return static_cast<const std::byte*>(array.data()); }
std::size_t count(const py::array& array) { return static_cast<std::size_t>(array.size()); }

struct LoneRecorder {
  LoneRecorder(Rank size, std::size_t rounds)
      : transports(make_loopback(size, 0, 0)), recorder(*transports.front(), rounds, nullptr) {}

  void note(std::uint32_t id, RoundNumber round, int state, const std::vector<Rank>& contributors) {
    std::vector<std::uint64_t> bitmap((transports.size() + 63) / 64);
    for (const Rank r : contributors) bitmap[static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (r % 64);
    RoundOutcome outcome;
    if (!contributors.empty()) {
      outcome = {contributors.front(), static_cast<std::uint32_t>(contributors.size()), bitmap};
    }
    recorder.note(id, round, static_cast<FlightRecorder::State>(state), outcome);
  }

  std::vector<std::unique_ptr<Transport>> transports;
  FlightRecorder recorder;
};

/// A robust mutex that a forked child shares.
struct LoneMutex {
  RobustMutex& mutex() const { return *reinterpret_cast<RobustMutex*>(memory->data()); }

  std::shared_ptr<SharedMemory> memory = SharedMemory::create(sizeof(RobustMutex));
};

void bind_mutex(py::module_& t) {
  py::class_<LoneMutex>(t, "RobustMutex")
      .def(py::init([] {
        auto lone = std::make_unique<LoneMutex>();
        new (lone->memory->data()) RobustMutex;
        return lone;
      }))
      .def(
          "lock", [](const LoneMutex& l) { l.mutex().lock(); }, py::call_guard<GilReleased>())
      .def("unlock", [](const LoneMutex& l) { l.mutex().unlock(); });
}

void bind_recorder(py::module_& t) {
  using L = LoneRecorder;
  using State = FlightRecorder::State;
  py::class_<L>(t, "FlightRecorder")
      .def(py::init<Rank, std::size_t>(), py::arg("size"), py::arg("rounds"))
      .def("opened", [](L& l, std::uint32_t id, const std::string& name) { l.recorder.opened(id, name); })
      .def("left", [](L& l, std::uint32_t id) { l.recorder.left(id); })
      .def("ended", [](L& l, std::uint32_t id) { l.recorder.ended(id); })
      .def("note", &L::note, py::arg("collective"), py::arg("round"), py::arg("state"),
           py::arg("contributors") = std::vector<Rank>())
      .def("wait",  // calls `during`, which may raise
           [](L& l, std::uint32_t id, const std::string& what, const py::object& round, const py::function& during) {
             const FlightRecorder::Waiting waiting(l.recorder, id, what,
                                                   round.is_none() ? kNoRound : round.cast<RoundNumber>());
             during();
           })
      .def("seconds_per_round",  // the cost of recording a call and an outcome
           [](L& l, std::uint32_t id, RoundNumber rounds) {
             const GilReleased released;
             const std::uint64_t members = 3;
             const Transport& transport = *l.transports.front();
             const auto track = l.recorder.track_of(id);
             const Seconds start = transport.now();
             for (RoundNumber round = 0; round < rounds; ++round) {
               l.recorder.note_at(track.get(), round, State::kCalled, start);
               l.recorder.note(id, round, State::kGiven, {0, 2, std::span(&members, 1)});
             }
             return (transport.now() - start) / static_cast<Seconds>(rounds);
           })
      .def("json", [](const L& l) {
        const GilReleased released;
        return l.recorder.json();
      });
}

/// The group boards of all ranks of a node in this process. A caller acts as one of the ranks.
class GroupBoards {
 public:
  /// `executor`: slots are on its device; on the host if it is null.
  GroupBoards(std::size_t ranks, std::size_t slot_bytes, Executor* executor) {
    const auto shared = SharedMemory::create_private(ArenaSeats::bytes(ranks));
    const std::shared_ptr<std::byte> seats(shared, shared->data());
    for (std::size_t local_rank = 0; local_rank < ranks; ++local_rank) {
      const auto memory = SharedMemory::create_private(GroupBoard::bytes(executor == nullptr ? slot_bytes : 0));
      memories_.emplace_back(memory, memory->data());
      std::unique_ptr<GroupSlots> slots;
      if (executor == nullptr) {
        slots = std::make_unique<HostSlots>(host_memory(), ranks, local_rank, slot_bytes);
      } else {
        auto on_device = std::make_unique<DeviceSlots>(*executor, ranks, local_rank, slot_bytes, seats);
        on_device_.push_back(on_device.get());
        slots = std::move(on_device);
      }
      boards_.push_back(std::make_unique<GroupBoard>(std::move(slots), ranks, local_rank, memories_.back()));
    }
    for (DeviceSlots* const slots : on_device_) slots->map_others();
    for (const auto& board : boards_) {
      for (std::size_t local_rank = 0; local_rank < ranks; ++local_rank)
        board->attach(local_rank, memories_[local_rank]);
    }
  }

  /// `values`, an array or an address, must live until `advance` returns true. None stands for no values.
  void start(std::size_t local_rank, std::vector<std::size_t> members, std::uint64_t ticket, const py::object& values,
             std::size_t count, const std::string& dtype, const std::string& op, std::optional<double> weight) {
    std::byte* data = nullptr;
    if (py::isinstance<py::int_>(values)) {
      data = reinterpret_cast<std::byte*>(values.cast<std::uintptr_t>());  // NOLINT(performance-no-int-to-ptr)
    } else if (!values.is_none()) {
      data = bytes(values.cast<py::array>());
    }
    boards_.at(local_rank)->start(std::move(members), ticket, {data, count, data_type(dtype), reduce_op(op), weight});
  }
  /// Returns whether the reduction has ended.
  bool advance(std::size_t local_rank) {
    boards_.at(local_rank)->advance();
    return boards_.at(local_rank)->ended();
  }
  std::optional<std::uint32_t> rings(std::size_t local_rank) const { return boards_.at(local_rank)->rings(); }
  void sleep(std::size_t local_rank, std::uint32_t rings, Seconds limit) {
    boards_.at(local_rank)->sleep(rings, limit);
  }
  /// For slots on a device. Returns whether no rank uses this rank's slots anymore.
  bool release(std::size_t local_rank) { return on_device_.at(local_rank)->release(); }

 private:
  static std::byte* bytes(py::array array) { return static_cast<std::byte*>(array.mutable_data()); }

  std::vector<std::shared_ptr<std::byte>> memories_;
  std::vector<DeviceSlots*> on_device_;
  std::vector<std::unique_ptr<GroupBoard>> boards_;
};

void bind_group_boards(py::module_& t) {
  py::class_<GroupBoards>(t, "GroupBoards")
      .def(py::init<std::size_t, std::size_t, Executor*>(), py::keep_alive<1, 4>(), py::arg("ranks"),
           py::arg("slot_bytes"), py::arg("executor") = py::none())
      .def("start", &GroupBoards::start, py::arg("local_rank"), py::arg("members"), py::arg("ticket"),
           py::arg("values"), py::kw_only(), py::arg("count"), py::arg("dtype"), py::arg("op"),
           py::arg("weight") = py::none())
      .def("advance", &GroupBoards::advance, py::arg("local_rank"))
      .def("release", &GroupBoards::release, py::arg("local_rank"))
      .def("rings", &GroupBoards::rings, py::arg("local_rank"))
      .def("sleep", &GroupBoards::sleep, py::arg("local_rank"), py::arg("rings"), py::arg("limit"),
           py::call_guard<GilReleased>());
}

void bind_update_slot(py::module_& t) {
  py::class_<UpdateSlot>(t, "UpdateSlot")
      .def(py::init<>())
      .def_property_readonly("tag", &UpdateSlot::tag)
      .def_property_readonly("is_claimed", [](const UpdateSlot& s) { return UpdateSlot::is_claimed(s.tag()); })
      .def_property_readonly("is_empty", [](const UpdateSlot& s) { return UpdateSlot::is_empty(s.tag()); })
      .def("is_full_of", &UpdateSlot::is_full_of, py::arg("iteration"))
      .def("empty", &UpdateSlot::empty, py::arg("seen"))
      .def("fill", &UpdateSlot::fill, py::arg("iteration"))
      .def("claim", &UpdateSlot::claim, py::arg("iteration"))
      .def("release", &UpdateSlot::release, py::arg("iteration"))
      .def("dequeue", &UpdateSlot::dequeue)
      .def("discard_before", &UpdateSlot::discard_before, py::arg("iteration"));
}

/// The posts of all ranks of a node in this process. A caller acts as one of the ranks.
class Posts {
 public:
  explicit Posts(Rank ranks) {
    BoardShape shape;
    shape.size = ranks;
    for (Rank r = 0; r < ranks; ++r) shape.ranks.push_back(r);
    shape.elements = elements_of(DataType::kFloat64, ReduceOp::kSum);
    shape.count = 1;
    shape.posts = true;
    BoardMemory sizes(nullptr, false);
    const BoardPosts counted(sizes, shape, 0);
    memory_ = SharedMemory::create_private(sizes.used());
    for (Rank r = 0; r < ranks; ++r) {
      BoardMemory memory(memory_->data(), r == 0);
      of_.emplace_back(memory, shape, r);
    }
  }
  BoardPosts& of(Rank rank) { return of_.at(static_cast<std::size_t>(rank)); }

 private:
  std::shared_ptr<SharedMemory> memory_;
  std::vector<BoardPosts> of_;
};

void bind_posts(py::module_& t) {
  const auto name_of = [](BoardPosts::State state) {
    constexpr const char* names[] = {"open", "complete", "taken", "undecided"};
    return names[static_cast<std::size_t>(state)];
  };
  py::class_<Posts>(t, "Posts")
      .def(py::init<Rank>(), py::arg("ranks"))
      .def("post", [](Posts& p, Rank rank, RoundNumber round, Seconds called) { p.of(rank).post(round, called, 1); })
      .def("state", [=](Posts& p, Rank rank, RoundNumber round) { return name_of(p.of(rank).state(round)); })
      .def("decided", [=](Posts& p, Rank rank, RoundNumber round) { return name_of(p.of(rank).decided(round)); })
      .def("close", [](Posts& p, Rank rank, RoundNumber completed) { return p.of(rank).close(completed); })
      .def("take", [](Posts& p, Rank rank, RoundNumber round) { return p.of(0).take(rank, round); })
      .def("reopen", [](Posts& p) { p.of(0).reopen(); })
      .def("completed", [](Posts& p, Rank rank) { return p.of(rank).completed(); })
      .def("first_to_call", [](Posts& p, RoundNumber round) { return p.of(0).first_to_call(round); });
}

// Messages of an imaginary service.
struct Empty {};
struct Number {
  std::int64_t value;
};
struct Numbers {
  using Tail = std::int32_t;
  std::uint64_t first;
};

/// The arguments that the handlers receive with a message, as text.
std::string delivered(std::uint32_t kind, const std::string& body) {
  using Messages = Mailbox<Empty, Number, Numbers>;
  const MessageHeader header{1, kind};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes += body;
  std::string text;
  const auto receive = Handlers{
      [&](Rank from, const Empty&) { text = "empty from " + std::to_string(from); },
      [&](Rank, const Number& number) { text = "number " + std::to_string(number.value); },
      [&](Rank, const Numbers& numbers, std::span<const std::int32_t> tail) {
        text = "numbers " + std::to_string(numbers.first);
        for (const std::int32_t number : tail) text += ", " + std::to_string(number);
      },
  };
  Messages::deliver(3, std::as_bytes(std::span(bytes)), receive);
  return text;
}

/// A loopback that imitates a busy network: active messages leave one per poll, and closing takes time.
class BusyTransport final : public Transport {
 public:
  explicit BusyTransport(std::unique_ptr<Transport> network) : network_(std::move(network)) {}

  Rank rank() const override { return network_->rank(); }
  Rank size() const override { return network_->size(); }
  Rank local_ranks() const override { return network_->local_ranks(); }
  Tag max_tag() const override { return network_->max_tag(); }
  std::size_t in_flight() const override { return network_->in_flight() + queue_.size(); }
  Seconds now() const override { return network_->now(); }

  void send(Rank to, Tag tag, ConstBytes header, ConstBytes payload, bool has_payload, Cookie cookie) override {
    network_->send(to, tag, header, payload, has_payload, cookie);
  }
  void recv(Rank from, Tag tag, Bytes payload, Cookie cookie) override { network_->recv(from, tag, payload, cookie); }
  bool poll(Listener& listener) override {
    const bool sends = !queue_.empty();
    if (sends) {
      network_->send_active(queue_.front().first, queue_.front().second);
      queue_.pop_front();
    }
    return network_->poll(listener) || sends;
  }
  void close() override {
    if (closed_.exchange(true)) throw InternalError("a transport is closed once");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    network_->close();
    freed_ = true;
  }
  bool freed() const { return freed_; }

 private:
  void transmit_active(Rank to, ConstBytes message) override {
    queue_.emplace_back(to, std::vector<std::byte>(message.begin(), message.end()));
  }

  std::unique_ptr<Transport> network_;
  std::deque<std::pair<Rank, std::vector<std::byte>>> queue_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> freed_{false};
};

/// An engine for each rank, driven by the callers.
std::vector<std::shared_ptr<Engine>> busy_loopback(Rank size) {
  std::vector<std::shared_ptr<Engine>> engines;
  for (auto& network : make_loopback(size, 0, 0)) {
    engines.push_back(std::make_shared<Engine>(std::make_unique<BusyTransport>(std::move(network)),
                                               Engine::Options{.progress = Progress::kCaller}));
  }
  return engines;
}

/// Sends an active message to rank 1 of two, and raises the error of its engine.
void receive(const std::string& message) {
  auto transports = make_loopback(2, 0, 0);
  Engine engine(std::move(transports[1]), {.progress = Progress::kCaller});
  transports[0]->send_active(1, std::as_bytes(std::span(message)));
  engine.advance();
  engine.check();
}

}  // namespace

void bind_testing(py::module_& t) {
  bind_mutex(t);
  bind_recorder(t);
  bind_group_boards(t);
  bind_update_slot(t);
  bind_posts(t);
  t.def(
      "delivered", [](std::uint32_t kind, const py::bytes& body) { return delivered(kind, body); }, py::arg("kind"),
      py::arg("body"));
  t.def("busy_loopback", &busy_loopback, py::arg("size"));
  t.def("is_driven", &Engine::in_background, py::arg("engine"));
  t.def(
      "freed", [](Engine& engine) { return dynamic_cast<BusyTransport&>(engine.transport()).freed(); },
      py::arg("engine"));
  t.def("receive", [](const py::bytes& message) { receive(message); }, py::arg("message"));
  const auto elements = [](const std::string& dtype, const std::string& op) {
    return elements_of(data_type(dtype), reduce_op(op));
  };
  t.def("is_defined",
        [](const std::string& op, const std::string& dtype) { return is_defined(reduce_op(op), data_type(dtype)); });
  t.def("load", [=](const std::string& dtype, const std::string& op, const py::array& from) {
    const Elements e = elements(dtype, op);
    py::array into = new_array(format_of(e.accumulator), count(from));
    host_memory().load(e, bytes(into), bytes(from), count(from));
    return into;
  });
  t.def("accumulate", [=](const std::string& dtype, const std::string& op, py::array into, const py::array& from) {
    host_memory().accumulate(elements(dtype, op), reduce_op(op), bytes(into), bytes(from), count(from));
  });
  t.def("reduce", [=](const std::string& dtype, const std::string& op, py::array into, const py::array& from) {
    host_memory().reduce(elements(dtype, op), reduce_op(op), bytes(into), bytes(from), count(from));
  });
  t.def("add", [=](const std::string& dtype, const std::string& op, py::array into, const py::array& from,
                   std::size_t divisor) {
    host_memory().add(elements(dtype, op), bytes(into), bytes(from), count(from), divisor);
  });
  t.def("store", [=](const std::string& dtype, const std::string& op, const py::array& from, std::size_t divisor) {
    const Elements e = elements(dtype, op);
    py::array into = new_array(format_of(e.type), count(from));
    host_memory().store(e, bytes(into), bytes(from), count(from), divisor);
    return into;
  });
  t.def("identity", [=](const std::string& dtype, const std::string& op, std::size_t n) {
    const Elements e = elements(dtype, op);
    py::array into = new_array(format_of(e.accumulator), n);
    host_memory().fill_identity(e, reduce_op(op), bytes(into), n);
    return into;
  });
}

}  // namespace pyc
