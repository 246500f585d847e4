// In _testing: executors, their streams and events, and the mapping of arenas. Addresses are integers.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/testing.h"
#include "memory/executor.h"
#include "services/common/arena_seats.h"

namespace pyc {
namespace {

using Address = std::uintptr_t;

std::byte* at(Address address) { return reinterpret_cast<std::byte*>(address); }  // NOLINT(performance-no-int-to-ptr)

/// The elements of a reduction of `dtype`. With `partial`, they are partial results.
Elements elements(const std::string& dtype, const std::string& op, bool partial) {
  const Elements found = elements_of(data_type(dtype), reduce_op(op));
  return partial ? Elements{found.accumulator, found.accumulator} : found;
}

std::vector<std::byte*> all_at(const std::vector<Address>& addresses) {
  std::vector<std::byte*> found;
  std::transform(addresses.begin(), addresses.end(), std::back_inserter(found), at);
  return found;
}

Inputs inputs(const std::vector<std::byte*>& found) { return {found.data(), found.size()}; }

struct Block {
  ExecutorMemory memory;
  Address address() const { return reinterpret_cast<Address>(memory.get()); }
  void free() { memory.reset(); }
};

SharedHandle handle_from(const std::string& bytes) {
  SharedHandle handle{};
  if (bytes.size() != handle.size()) throw std::invalid_argument("handle: expected 64 bytes");
  std::copy(bytes.begin(), bytes.end(), handle.begin());
  return handle;
}
py::bytes bytes_of(const SharedHandle& handle) { return {handle.data(), handle.size()}; }

/// A rank's arena seats, in a buffer that processes share.
class SharedSeats {
 public:
  SharedSeats(const py::buffer& memory, std::size_t ranks, std::size_t local)
      : memory_(memory.request(true)),
        seats_({std::shared_ptr<void>(), static_cast<std::byte*>(memory_.ptr)}, ranks, local) {}

  void take(Executor& executor, Address arena) { seats_.take(executor, at(arena)); }
  void map_others() {
    seats_.map_others([](std::size_t, const SharedHandle&) {});
  }
  bool release(const py::function& unmap, const py::function& free) { return seats_.release(unmap, free); }

 private:
  const py::buffer_info memory_;
  ArenaSeats seats_;
};

void bind_arena_seats(py::module_& t) {
  py::class_<SharedSeats>(t, "ArenaSeats")
      .def_static("bytes", &ArenaSeats::bytes)
      .def(py::init<const py::buffer&, std::size_t, std::size_t>())
      .def("take", &SharedSeats::take)
      .def("map_others", &SharedSeats::map_others)
      .def("release", &SharedSeats::release);
}

void bind_streams(py::module_& t) {
  py::class_<Event>(t, "Event").def("reached", &Event::reached);
  py::class_<Stream>(t, "Stream")
      .def("wait", &Stream::wait)
      .def("record", &Stream::record)
      .def("copy", [](Stream& s, Address to, Address from, std::size_t bytes) { s.copy(at(to), at(from), bytes); })
      .def(
          "fold",
          [](Stream& s, const std::string& dtype, const std::string& op, const std::vector<Address>& out,
             const std::vector<Address>& in, std::size_t count, std::size_t divisor, bool partial) {
            s.fold(elements(dtype, op, partial), reduce_op(op), all_at(out), inputs(all_at(in)), count, divisor);
          },
          py::arg("dtype"), py::arg("op"), py::arg("outputs"), py::arg("inputs"), py::arg("count"),
          py::arg("divisor") = 1, py::arg("partial") = false)
      .def("weighted_sum",
           [](Stream& s, const std::string& dtype, const std::vector<Address>& out, const std::vector<Address>& in,
              const std::vector<double>& factors,
              std::size_t count) { s.weighted_sum(data_type(dtype), all_at(out), inputs(all_at(in)), factors, count); })
      .def("load", [](Stream& s, const std::string& dtype, const std::string& op, Address into, Address from,
                      std::size_t count) { s.load(elements(dtype, op, false), at(into), at(from), count); })
      .def("store",
           [](Stream& s, const std::string& dtype, const std::string& op, Address into, Address from, std::size_t count,
              std::size_t divisor) { s.store(elements(dtype, op, false), at(into), at(from), count, divisor); });
}

}  // namespace

void bind_testing_executors(py::module_& t) {
  py::class_<Block>(t, "Block").def_property_readonly("address", &Block::address).def("free", &Block::free);
  py::class_<Executor>(t, "Executor")
      .def_property_readonly("kind", &Executor::kind)
      .def(
          "allocate", [](Executor& e, std::size_t bytes) { return Block{e.allocate(bytes)}; }, py::keep_alive<0, 1>())
      .def(
          "allocate_staging", [](Executor& e, std::size_t bytes) { return Block{e.allocate_staging(bytes)}; },
          py::keep_alive<0, 1>())
      .def("new_stream", &Executor::new_stream, py::keep_alive<0, 1>())
      .def("new_event", &Executor::new_event, py::keep_alive<0, 1>())
      .def("stream_of_caller", &Executor::stream_of_caller, py::keep_alive<0, 1>())
      .def("share", [](Executor& e, Address data) { return bytes_of(e.share(at(data))); })
      .def(
          "map", [](Executor& e, const py::bytes& handle) { return Block{e.map(handle_from(handle))}; },
          py::keep_alive<0, 1>());
  bind_streams(t);
  bind_arena_seats(t);
  t.def("host_executor", &host_executor, py::return_value_policy::reference);
}

}  // namespace pyc
