#include "algorithms/registry.h"

#include <charconv>
#include <map>
#include <mutex>
#include <stdexcept>

namespace pyc {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, AllreduceAlgorithm> by_name;
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
  if (name.find(':') != std::string::npos) {
    throw std::invalid_argument("algorithm '" + name + "': expected a name without ':', which separates a variant");
  }
  if (!r.by_name.emplace(name, std::move(algorithm)).second) {
    throw std::invalid_argument("algorithm '" + name + "' is registered already");
  }
}

AllreduceAlgorithm find_allreduce(const std::string& name) {
  const std::size_t colon = name.find(':');
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto found = r.by_name.find(name.substr(0, colon));
  if (found != r.by_name.end()) {
    if (colon == std::string::npos) return found->second;
    Rank k = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + colon + 1, end, k);
    if (found->second.variant && parsed.ec == std::errc() && parsed.ptr == end && k > 0) {
      return found->second.variant(k);
    }
  }
  std::string known;
  for (const auto& [other, algorithm] : r.by_name) {
    known += (known.empty() ? "" : ", ") + other + (algorithm.variant ? "[:K]" : "");
  }
  throw std::invalid_argument("no allreduce algorithm '" + name + "'; there are " + known);
}

std::vector<AllreduceAlgorithm> allreduce_algorithms() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<AllreduceAlgorithm> all;
  for (const auto& [name, algorithm] : r.by_name) all.push_back(algorithm);
  return all;
}

std::vector<AllreduceAlgorithm> allreduce_candidates(Rank size) {
  std::vector<AllreduceAlgorithm> all;
  for (AllreduceAlgorithm& algorithm : allreduce_algorithms()) {
    if (!algorithm.course) continue;
    if (algorithm.variants) {
      for (const Rank k : algorithm.variants(size)) all.push_back(algorithm.variant(k));
    } else {
      all.push_back(std::move(algorithm));
    }
  }
  return all;
}

}  // namespace pyc
