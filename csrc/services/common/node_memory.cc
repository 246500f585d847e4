#include "services/common/node_memory.h"

#include <exception>
#include <stdexcept>
#include <vector>

namespace pyc {
namespace {

constexpr char kRefused[] = "refused: ";

/// What every rank says; throws if one could not do its part.
std::vector<std::string> heard(Engine& engine, const std::string& mine, const std::string& what, Seconds timeout,
                               const Engine::Interrupt& interrupt) {
  std::vector<std::string> all = engine.exchange(mine, what, timeout, interrupt);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].starts_with(kRefused)) {
      throw std::runtime_error(what + ": on rank " + std::to_string(r) + ": " + all[r].substr(sizeof kRefused - 1));
    }
  }
  return all;
}

}  // namespace

void share_memory(Engine& engine, const Nodes& nodes, std::size_t bytes, const std::string& what,
                  const std::function<void(const std::shared_ptr<SharedMemory>&)>& prepare, Seconds timeout,
                  const Engine::Interrupt& interrupt) {
  const Rank agent = nodes.agent(nodes.of(engine.rank()));
  std::shared_ptr<SharedMemory> shared;
  const auto attempt = [&](auto get_memory) -> std::string {
    try {
      shared = get_memory();
      prepare(shared);
      return shared->handle();
    } catch (const std::exception& error) {
      return kRefused + std::string(error.what());
    }
  };
  // The agent makes it, before the others open it.
  const bool makes = engine.rank() == agent;
  const bool nobody_opens = nodes.count() == nodes.size();
  const auto make = [&] { return nobody_opens ? SharedMemory::create_private(bytes) : SharedMemory::create(bytes); };
  const std::string mine = makes ? attempt(make) : std::string();
  const std::string handle = heard(engine, mine, what, timeout, interrupt)[static_cast<std::size_t>(agent)];
  if (nobody_opens) return;
  heard(engine, makes ? handle : attempt([&] { return SharedMemory::open(handle); }), what, timeout, interrupt);
  shared->seal();
}

}  // namespace pyc
