#include "services/common/node_memory.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <vector>

namespace pyc {
namespace {

/// Returns the error of `part`; empty if it succeeded.
std::string refusal_of(const std::function<void()>& part) {
  try {
    part();
    return {};
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& error) {
    const std::string text = std::string(error.what()).substr(0, Bootstrap::kMaxText);
    return text.empty() ? "an error without a text" : text;
  }
}

std::string first_of_all(Engine& engine, const std::string& refusal, const std::string& what, Seconds timeout,
                         const Engine::Interrupt& interrupt) {
  const Engine::Texts all = engine.compare(refusal, what, timeout, interrupt);
  if (!all && refusal.empty()) return {};
  std::size_t rank = 0;
  while (all && (*all)[rank].empty()) ++rank;
  return what + ": on rank " + std::to_string(rank) + ": " + (all ? (*all)[rank] : refusal);
}

/// Throws on all ranks if one has a `refusal`.
void check_all(Engine& engine, const std::string& refusal, const std::string& what, Seconds timeout,
               const Engine::Interrupt& interrupt) {
  const std::string first = first_of_all(engine, refusal, what, timeout, interrupt);
  if (!first.empty()) throw std::runtime_error(first);
}

}  // namespace

std::string try_together(Engine& engine, const std::string& what, const std::function<void()>& part, Seconds timeout,
                         const Engine::Interrupt& interrupt) {
  return first_of_all(engine, refusal_of(part), what, timeout, interrupt);
}

void attempt_together(Engine& engine, const std::string& what, const std::function<void()>& part, Seconds timeout,
                      const Engine::Interrupt& interrupt) {
  check_all(engine, refusal_of(part), what, timeout, interrupt);
}

void share_memory(Engine& engine, const Nodes& nodes, std::size_t bytes, const std::string& what,
                  const std::function<void(const std::shared_ptr<SharedMemory>&)>& prepare, Seconds timeout,
                  const Engine::Interrupt& interrupt) {
  std::shared_ptr<SharedMemory> shared;
  std::string refusal;
  const auto attempt = [&](auto get_memory) {
    refusal = refusal_of([&] {
      shared = get_memory();
      prepare(shared);
    });
    if (!refusal.empty()) shared.reset();
  };
  if (nodes.count() == nodes.size()) {
    attempt([&] { return SharedMemory::create_private(bytes); });
    return check_all(engine, refusal, what, timeout, interrupt);
  }
  // The node's first rank allocates before the others open. If it fails, it hands down an empty handle.
  const std::vector<Rank>& ranks = nodes.ranks(nodes.of(engine.rank()));
  const bool makes = engine.rank() == ranks.front();
  if (makes) attempt([&] { return SharedMemory::create(bytes); });
  const std::string handle =
      engine.hand_down(shared ? shared->handle() : std::string(), ranks, what, timeout, interrupt);
  if (!makes && !handle.empty()) attempt([&] { return SharedMemory::open(handle); });
  check_all(engine, refusal, what, timeout, interrupt);
  shared->seal();
}

}  // namespace pyc
