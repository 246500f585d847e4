// The shared counter.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/calls.h"
#include "bindings/one_thread.h"
#include "bindings/protocol.h"
#include "services/counter/counter.h"

namespace pyc {
namespace {

class BoundCounter {
 public:
  BoundCounter(std::shared_ptr<Engine> engine, std::string name, std::uint64_t start, const Nodes& nodes,
               Seconds timeout) {
    const GilReleased released;
    counter_ = SharedCounter::create(std::move(engine), std::move(name), start, nodes, timeout, run_signal_handlers);
  }

  std::uint64_t fetch_add(std::uint64_t n, const py::object& timeout) {
    const OneThread one(in_use_, counter_->name());
    const Seconds limit = timeout_from(timeout);
    const GilReleased released;
    return counter_->fetch_add(n, limit, run_signal_handlers);
  }

  py::dict state() {
    py::dict out;
    out["known"] = counter_->known();
    out["served"] = counter_->served();
    const auto request = counter_->request();
    out["request"] = request ? py::object(py::make_tuple(request->sequence, request->n, request->before)) : py::none();
    return out;
  }

  SharedCounter& operator*() { return *counter_; }

 private:
  std::shared_ptr<SharedCounter> counter_;
  std::atomic_flag in_use_;
};

}  // namespace

void bind_counter(py::module_& m) {
  const py::class_<BoundCounter> counter(m, "SharedCounter", py::is_final());
  ClassDefinitions(counter)
      .constructor("engine, *, start, nodes, timeout=None, name",
                   [](std::shared_ptr<Engine> engine, std::uint64_t start, std::vector<Rank> nodes,
                      const py::object& timeout, std::string name) {
                     return std::make_unique<BoundCounter>(std::move(engine), std::move(name), start,
                                                           Nodes(std::move(nodes)), timeout_from(timeout));
                   })
      .method<&BoundCounter::fetch_add>("fetch_add", "n, *, timeout=None")
      .method<&BoundCounter::state>("state", "")
      .method("statistics", "", [](BoundCounter& b) { return common_statistics(*b); });
  define_protocol<BoundCounter>(Definitions(counter));
  define_leave<BoundCounter>(Definitions(counter));
}

}  // namespace pyc
