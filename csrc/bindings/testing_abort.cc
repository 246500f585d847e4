// In _testing: calls during the abort of an engine, under its progress lock.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/testing.h"
#include "engine/engine.h"
#include "services/common/creation.h"

namespace pyc {
namespace {

/// A collective that calls Python when it is aborted, before collectives that were created later.
class CalledAtAbort final : public Collective {
 public:
  explicit CalledAtAbort(std::function<void()> call) : call_(std::move(call)) {}

  void abort() override {
    call_();
    ended_ = true;
  }
  void end() { ended_ = true; }

  bool advance() override { return false; }
  void on_message(Rank, ConstBytes) override {}
  bool busy() const override { return false; }
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return ended_; }
  const std::string& name() const override { return name_; }
  std::vector<Rank> not_closed() const override { return {}; }
  bool has_waiting(Rank) const override { return false; }

 private:
  const std::function<void()> call_;
  const std::string name_ = "called at abort";
  std::atomic<bool> ended_{false};
};

std::shared_ptr<CalledAtAbort> called_at_abort(std::shared_ptr<Engine> engine, const py::function& call) {
  const std::shared_ptr<py::object> function(new py::object(call), [](py::object* held) {
    const GilHeld lock;
    delete held;
  });
  auto made = std::make_shared<CalledAtAbort>([function] {
    const GilHeld lock;
    (*function)();
  });
  const GilReleased released;
  return enroll(std::move(engine), std::move(made), [](std::uint32_t) {});
}

}  // namespace

void bind_testing_abort(py::module_& t) {
  py::class_<CalledAtAbort, std::shared_ptr<CalledAtAbort>>(t, "CalledAtAbort")
      .def(py::init(&called_at_abort), py::arg("engine"), py::arg("call"))
      .def("end", &CalledAtAbort::end);
  t.def("is_wanted", &Engine::is_wanted, py::arg("engine"));
  t.def("is_busy", &Engine::busy, py::arg("engine"));
}

}  // namespace pyc
