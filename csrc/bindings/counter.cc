// The shared counter.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/bound.h"
#include "bindings/calls.h"
#include "services/counter/counter.h"

namespace pyc {
namespace {

py::dict state_of(const SharedCounter& counter) {
  py::dict out;
  out["known"] = counter.known();
  out["served"] = counter.served();
  const auto request = counter.request();
  out["request"] = request ? py::object(py::make_tuple(request->sequence, request->n, request->before)) : py::none();
  return out;
}

}  // namespace

void bind_counter(py::module_& m) {
  using Counter = BoundCollective<SharedCounter>;
  const py::class_<Counter> counter(m, "SharedCounter", py::is_final());
  ClassDefinitions(counter)
      .constructor("engine, *, start, nodes, timeout=None, name",
                   [](std::shared_ptr<Engine> engine, std::uint64_t start, std::vector<Rank> nodes, Timeout timeout,
                      std::string name) {
                     return std::make_unique<Counter>([&] {
                       return SharedCounter::create(std::move(engine), std::move(name), start, Nodes(std::move(nodes)),
                                                    timeout, run_signal_handlers);
                     });
                   })
      .method("fetch_add", "n, *, timeout=None",
              [](Counter& b, std::uint64_t n, Timeout timeout) {
                return b.exclusively([=](SharedCounter& c) { return c.fetch_add(n, timeout, run_signal_handlers); });
              })
      .method("state", "", [](Counter& b) { return state_of(*b); })
      .method<&Counter::statistics>("statistics", "");
  define_protocol<Counter>(Definitions(counter));
}

}  // namespace pyc
