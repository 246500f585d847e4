// A collective that cannot begin after all ranks have agreed on it.
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cpp_test.h"
#include "engine/engine.h"
#include "services/common/creation.h"
#include "transport/loopback.h"

namespace pyc {
namespace {

class Idle final : public Collective {
 public:
  bool advance() override { return false; }
  void on_message(Rank, ConstBytes) override {}
  bool busy() const override { return false; }
  Seconds deadline() const override { return kNever; }
  bool finished() const override { return false; }
  const std::string& name() const override { return name_; }
  void abort() override { aborted = true; }
  std::vector<Rank> not_closed() const override { return {}; }
  void on_engine_failure(const std::exception_ptr&) override { failed = true; }
  bool has_waiting(Rank) const override { return false; }

  bool failed = false;
  bool aborted = false;

 private:
  const std::string name_ = "idle";
};

std::shared_ptr<Engine> engine_of_two() {
  return std::make_shared<Engine>(std::move(make_loopback(2, 0, 0).front()),
                                  Engine::Options{.progress = Progress::kCaller});
}

template <class Error, class Action>
std::string text_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

/// Its receives may have been posted: what they write to lives as long as the engine.
PYC_TEST(a_collective_that_cannot_begin_is_kept_and_fails_its_engine) {
  std::shared_ptr<Engine> engine = engine_of_two();
  auto made = std::make_shared<Idle>();
  const std::weak_ptr<Idle> left = made;
  const auto give = [](std::uint32_t) { throw std::runtime_error("no more memory"); };
  PYC_CHECK(text_of<std::runtime_error>([&] { enroll(engine, std::move(made), give); }) == "no more memory");
  PYC_CHECK(!left.expired());
  PYC_CHECK(left.lock()->failed);
  PYC_CHECK(engine->open_collectives().empty());
  const auto other = std::make_shared<Idle>();
  PYC_CHECK(text_of<std::runtime_error>([&] { engine->check(); }) == "no more memory");
  PYC_CHECK(text_of<std::runtime_error>([&] { engine->start_comparison(""); }) == "no more memory");
  PYC_CHECK(text_of<std::runtime_error>([&] { enroll(engine, other, [](std::uint32_t) {}); }) == "no more memory");
  engine->abort();
  PYC_CHECK(!left.lock()->aborted);
  engine.reset();
  PYC_CHECK(left.expired());
}

PYC_TEST(a_collective_that_is_refused_before_it_begins_changes_nothing) {
  const std::shared_ptr<Engine> engine = engine_of_two();
  engine->exclusively([&] { engine->start_close(); });
  const auto give = [](std::uint32_t) {};
  PYC_CHECK(!text_of<ClosedError>([&] { enroll(engine, std::make_shared<Idle>(), give); }).empty());
  PYC_CHECK(engine->open_collectives().empty());
  engine->check();
}

}  // namespace pyc
