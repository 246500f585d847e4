#include "algorithms/registry.h"

#include <map>
#include <mutex>
#include <stdexcept>

namespace pyc {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, AllreduceAlgorithm> by_name;  // references into a map stay valid
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

void register_allreduce(AllreduceAlgorithm algorithm) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const std::string name = algorithm.name;
  if (!r.by_name.emplace(name, std::move(algorithm)).second) {
    throw std::invalid_argument("algorithm '" + name + "' is registered already");
  }
}

const AllreduceAlgorithm& find_allreduce(const std::string& name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.by_name.find(name);
  if (found != r.by_name.end()) return found->second;
  std::string known;
  for (const auto& [other, algorithm] : r.by_name) known += (known.empty() ? "" : ", ") + other;
  throw std::invalid_argument("no allreduce algorithm '" + name + "'; there are " + known);
}

std::vector<AllreduceAlgorithm> allreduce_algorithms() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<AllreduceAlgorithm> all;
  for (const auto& [name, algorithm] : r.by_name) all.push_back(algorithm);
  return all;
}

}  // namespace pyc
