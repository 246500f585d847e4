// Of _core.testing: the device board, on whatever executor. Addresses are integers; ranks are lists of local ranks.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "engine/engine.h"
#include "node/shared_memory.h"
#include "services/common/device_board.h"
#include "services/common/device_board_creation.h"

namespace pyc {
namespace {

using LocalRankList = std::vector<std::size_t>;

LocalRanks mask_of(const LocalRankList& ranks) {
  LocalRanks mask = 0;
  for (const std::size_t rank : ranks) mask |= LocalRanks{1} << rank;
  return mask;
}

LocalRankList list_of(LocalRanks mask) {
  LocalRankList ranks;
  for (std::size_t rank = 0; rank < DeviceBoardControl::kMostRanks; ++rank) {
    if (((mask >> rank) & 1U) != 0) ranks.push_back(rank);
  }
  return ranks;
}

std::byte* data_at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

DeviceBoard::Shape shape_of(const std::string& dtype, const std::string& op, std::size_t count, bool latest) {
  return {elements_of(data_type(dtype), reduce_op(op)), reduce_op(op), count,
          latest ? DeviceBoard::Keep::kLatest : DeviceBoard::Keep::kUntilRead};
}

/// What the boards of a node share, without an engine.
std::shared_ptr<SharedMemory> new_control() {
  std::shared_ptr<SharedMemory> control = SharedMemory::create(DeviceBoard::bytes());
  DeviceBoard::prepare(control->data());
  return control;
}

}  // namespace

void bind_testing_device_board(py::module_& t) {
  py::class_<SharedMemory, std::shared_ptr<SharedMemory>>(t, "DeviceBoardControl")
      .def(py::init(&new_control))
      .def_static("open", &SharedMemory::open, py::arg("handle"))
      .def_property_readonly("handle", &SharedMemory::handle);
  using B = DeviceBoard;
  py::class_<B>(t, "DeviceBoard")
      .def(py::init([](const std::shared_ptr<SharedMemory>& control, Executor& executor, std::vector<Rank> ranks,
                       std::size_t local, const std::string& dtype, const std::string& op, std::size_t count,
                       bool latest) {
             return std::make_unique<B>(executor, shape_of(dtype, op, count, latest), std::move(ranks), local,
                                        std::shared_ptr<std::byte>(control, control->data()));
           }),
           py::keep_alive<1, 3>(), py::arg("control"), py::arg("executor"), py::kw_only(), py::arg("ranks"),
           py::arg("local"), py::arg("dtype"), py::arg("op"), py::arg("count"), py::arg("latest") = false)
      .def("attach", &B::attach)
      .def(
          "contribute",
          [](B& b, std::uintptr_t values, Stream& producer, const std::string& late, std::uint64_t ticket) {
            const auto how = late == "accumulate" ? B::Late::kAccumulate : B::Late::kReplace;
            return b.contribute(data_at(values), producer, how, ticket);
          },
          py::arg("values"), py::arg("producer"), py::kw_only(), py::arg("late") = "accumulate",
          py::arg("ticket") = B::kAnyRound)
      .def("waiting", [](const B& b) { return list_of(b.waiting()); })
      .def_property_readonly("taken_by", &B::taken_by)
      .def(
          "fold",
          [](B& b, std::uint64_t ticket, const LocalRankList& ranks, const LocalRankList& readers, std::size_t parts) {
            return b.fold(ticket, mask_of(ranks), mask_of(readers), parts);
          },
          py::arg("ticket"), py::arg("ranks"), py::arg("readers"), py::arg("parts"))
      .def(
          "result",
          [](B& b, std::uint64_t ticket, std::uintptr_t out, Stream& consumer) -> py::object {
            const auto found = b.result(ticket, data_at(out), consumer);
            return found ? py::make_tuple(found->ticket, list_of(found->contributors)) : py::object(py::none());
          },
          py::arg("ticket"), py::arg("out"), py::arg("consumer"))
      .def("advance", &B::advance)
      .def("close", &B::close)
      .def("gone", [](const B& b) { return list_of(b.gone()); })
      .def("rings", &B::rings)
      .def("sleep", &B::sleep, py::arg("rings"), py::arg("limit"), py::call_guard<GilReleased>());
  t.def(
      "make_device_board",
      [](Engine& engine, std::vector<Rank> nodes, Executor& executor, const std::string& dtype, const std::string& op,
         std::size_t count, const py::object& timeout) {
        const Seconds limit = timeout_from(timeout);
        const B::Shape shape = shape_of(dtype, op, count, false);
        const GilReleased released;
        return make_device_board(engine, Nodes(std::move(nodes)), executor, shape, "a device board", limit,
                                 run_signal_handlers);
      },
      py::keep_alive<0, 3>(), py::arg("engine"), py::arg("nodes"), py::arg("executor"), py::kw_only(), py::arg("dtype"),
      py::arg("op"), py::arg("count"), py::arg("timeout") = py::none());
}

}  // namespace pyc
