#include "memory/cuda/simulated_driver.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "memory/cuda/simulated_state.h"

// Names are the driver's, and handles are numbers.
// NOLINTBEGIN(performance-no-int-to-ptr)

namespace pyc::cuda {

std::recursive_mutex simulated_mutex;
SimulatedDriver::State* simulated_state = nullptr;
thread_local SimulatedThread simulated_thread;

namespace {

constexpr char kImage[] = "simulated device code";
constexpr std::string_view kFunctions[] = {
#define PYC_NAME(name, parameters) #name,
    PYC_DRIVER_FUNCTIONS(PYC_NAME) PYC_OPTIONAL_DRIVER_FUNCTIONS(PYC_NAME)
#undef PYC_NAME
        "cuMemcpyAsync to the host",
};

}  // namespace

// ------------------------------------------------------------------------------------------------ state

CUresult SimulatedDriver::State::enter(const char* function, bool needs_context) {
  work_meanwhile();
  if (const std::optional<int> error = due_error(function)) return *error;
  if (needs_context) check_context(function);
  return sticky;
}

void SimulatedDriver::State::work_meanwhile() {
  for (std::size_t i = random.below(4); i > 1; --i) step();
}

std::optional<int> SimulatedDriver::State::due_error(const std::string& function) {
  const auto failure = failures.find(function);
  if (failure == failures.end() || failure->second.calls_before-- != 0) return std::nullopt;
  return failures.extract(failure).mapped().error;
}

void SimulatedDriver::State::check_context(const char* function) {
  if (simulated_thread.contexts.empty()) misused(std::string(function) + " without a current context");
}

CUresult SimulatedDriver::State::check_captures(const char* function) {
  if (captures.empty() || simulated_thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  misused(std::string(function) + " breaks a capture of the caller's");
  for (auto& [stream, is_broken] : captures) is_broken = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

SimulatedDriver::State::Region* SimulatedDriver::State::find(std::uint64_t address, std::size_t bytes) {
  auto after = regions.upper_bound(address);
  if (after == regions.begin()) return nullptr;
  Region& region = std::prev(after)->second;
  if (!region.live || region.storage->is_free()) return nullptr;
  return address - region.base + bytes <= region.bytes() ? &region : nullptr;
}

std::byte* SimulatedDriver::State::translate(std::uint64_t address, std::size_t bytes, bool by_kernel) {
  if (address >= kFirstAddress) {
    Region* const region = find(address, bytes);
    return region != nullptr ? region->storage->data() + (address - region->base) : nullptr;
  }
  auto* const host = reinterpret_cast<std::byte*>(address);
  const bool reached = !by_kernel || std::any_of(pinned.begin(), pinned.end(), [&](const auto& one) {
    return one.first <= host && host + bytes <= one.first + one.second->size();
  });
  return reached ? host : nullptr;
}

bool SimulatedDriver::State::is_touched(std::uint64_t base) const {
  return std::any_of(streams.begin(), streams.end(), [&](const auto& stream) {
    return std::any_of(stream.second->queue.begin(), stream.second->queue.end(), [&](const Work& work) {
      return std::find(work.regions.begin(), work.regions.end(), base) != work.regions.end();
    });
  });
}

SimulatedDriver::State::Region& SimulatedDriver::State::add_region(std::shared_ptr<SimulatedStorage> storage,
                                                                   bool is_mapping) {
  const std::uint64_t base = next_address;
  next_address += (storage->bytes() / kGap + 2) * kGap;
  return regions[base] = {base, std::move(storage), is_mapping, true};
}

SimulatedDriver::State::Region* SimulatedDriver::State::region_at(std::uint64_t base, bool is_mapping) {
  const auto found = regions.find(base);
  const bool is_there = found != regions.end() && found->second.live && found->second.is_mapping == is_mapping;
  return is_there ? &found->second : nullptr;
}

SimulatedDriver::State::Stream* SimulatedDriver::State::stream(CUstream handle) {
  if (reinterpret_cast<std::uintptr_t>(handle) <= 2 && !streams.contains(handle)) {  // the default streams
    streams[handle] = std::make_unique<Stream>();
    streams[handle]->of_caller = true;
  }
  const auto found = streams.find(handle);
  return found != streams.end() ? found->second.get() : nullptr;
}

CUresult SimulatedDriver::State::queue(CUstream handle, Work work) {
  Stream* const on = stream(handle);
  if (on == nullptr) {
    misused("work on a stream that does not exist");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (captures.contains(handle)) {
    misused("work on a stream that is being captured: it would become part of the caller's graph");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  on->queue.push_back(std::move(work));
  return CUDA_SUCCESS;
}

bool SimulatedDriver::State::step() {
  std::vector<Stream*> ready;
  for (const auto& [handle, one] : streams) {
    const bool waits = one->queue.empty() || (one->queue.front().is_ready && !one->queue.front().is_ready());
    if (!waits) ready.push_back(one.get());
  }
  if (ready.empty() || sticky != CUDA_SUCCESS) return false;
  Stream& chosen = *ready[random.below(ready.size())];
  const Work work = std::move(chosen.queue.front());
  chosen.queue.pop_front();
  ++steps;
  sticky = steps == fault_at ? CUDA_ERROR_ILLEGAL_ADDRESS : work.run();
  return true;
}

// ------------------------------------------------------------------------------------------------ for tests

SimulatedDriver::SimulatedDriver(std::uint64_t seed, std::size_t capacity, int devices)
    : state_(std::make_unique<State>(seed)) {
  if (simulated_state != nullptr) throw std::runtime_error("simulated driver: there is one already");
  state_->capacity = capacity;
  state_->devices = devices;
  simulated_state = state_.get();
}

SimulatedDriver::~SimulatedDriver() { simulated_state = nullptr; }

const DriverApi& SimulatedDriver::api() const { return kSimulatedApi; }
const void* SimulatedDriver::image() { return kImage; }

void SimulatedDriver::fail(const std::string& function, std::uint64_t nth, int error) {
  const std::lock_guard lock(simulated_mutex);
  if (std::find(std::begin(kFunctions), std::end(kFunctions), function) == std::end(kFunctions)) {
    throw std::invalid_argument("simulated driver: there is no function " + function);
  }
  state_->failures[function] = {nth - 1, error};
}

void SimulatedDriver::set_attribute(int attribute, std::optional<int> value) {
  const std::lock_guard lock(simulated_mutex);
  state_->attributes[attribute] = value;
}

void SimulatedDriver::fault(std::uint64_t nth) {
  const std::lock_guard lock(simulated_mutex);
  state_->fault_at = state_->steps + nth;
}

std::uintptr_t SimulatedDriver::stream_of_caller(int device) {
  const std::lock_guard lock(simulated_mutex);
  const std::uint64_t handle = state_->next_handle++;
  state_->streams[reinterpret_cast<CUstream>(handle)] =
      std::make_unique<State::Stream>(State::Stream{.of_caller = true, .device = device, .queue = {}});
  return handle;
}

void SimulatedDriver::begin_capture(std::uintptr_t stream) {
  const std::lock_guard lock(simulated_mutex);
  state_->captures[reinterpret_cast<CUstream>(stream)] = false;
}

bool SimulatedDriver::end_capture(std::uintptr_t stream) {
  const std::lock_guard lock(simulated_mutex);
  return !state_->captures.extract(reinterpret_cast<CUstream>(stream)).mapped();
}

void SimulatedDriver::produce(std::uintptr_t stream, const std::byte* to, std::vector<std::byte> bytes) {
  const std::lock_guard lock(simulated_mutex);
  const auto address = reinterpret_cast<std::uint64_t>(to);
  State& s = *state_;
  s.queue(reinterpret_cast<CUstream>(stream), {.is_ready = {},
                                               .run =
                                                   [&s, address, bytes = std::move(bytes)] {
                                                     std::byte* const into = s.translate(address, bytes.size(), true);
                                                     if (into == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
                                                     std::memcpy(into, bytes.data(), bytes.size());
                                                     return CUDA_SUCCESS;
                                                   },
                                               .regions = {}});
}

void SimulatedDriver::hold(std::uintptr_t stream) {
  const std::lock_guard lock(simulated_mutex);
  State& s = *state_;
  s.held.insert(stream);
  s.queue(reinterpret_cast<CUstream>(stream), {.is_ready = [&s, stream] { return !s.held.contains(stream); },
                                               .run = [] { return CUDA_SUCCESS; },
                                               .regions = {}});
}

void SimulatedDriver::let_go(std::uintptr_t stream) {
  const std::lock_guard lock(simulated_mutex);
  state_->held.erase(stream);
}

bool SimulatedDriver::step() {
  const std::lock_guard lock(simulated_mutex);
  return state_->step();
}

void SimulatedDriver::finish() {
  const std::lock_guard lock(simulated_mutex);
  while (state_->step()) continue;
  const auto& streams = state_->streams;
  const bool is_done =
      std::all_of(streams.begin(), streams.end(), [](const auto& s) { return s.second->queue.empty(); });
  if (!is_done && state_->sticky == CUDA_SUCCESS) {
    throw std::runtime_error("simulated driver: streams wait for each other for ever");
  }
}

std::vector<std::byte> SimulatedDriver::read(const std::byte* from, std::size_t bytes) const {
  const std::lock_guard lock(simulated_mutex);
  const std::byte* const found = state_->translate(reinterpret_cast<std::uint64_t>(from), bytes, true);
  if (found == nullptr) throw std::invalid_argument("simulated driver: nothing is allocated there");
  return {found, found + bytes};
}

std::uint64_t SimulatedDriver::steps() const {
  const std::lock_guard lock(simulated_mutex);
  return state_->steps;
}

std::vector<std::string> SimulatedDriver::problems(bool end) const {
  const std::lock_guard lock(simulated_mutex);
  std::vector<std::string> found = state_->misuses;
  const auto left = [&](const char* what, auto count) {
    if (count != 0) found.push_back("simulated driver: " + std::to_string(count) + " left: " + what);
  };
  if (!end) return found;
  const auto live = [&](bool mapped) {
    return std::count_if(state_->regions.begin(), state_->regions.end(),
                         [&](const auto& one) { return one.second.live && one.second.is_mapping == mapped; });
  };
  left("allocations", live(false));
  left("mappings", live(true));
  left("pinned allocations", state_->pinned.size());
  left("streams", std::count_if(state_->streams.begin(), state_->streams.end(),
                                [](const auto& one) { return !one.second->of_caller; }));
  left("events", state_->events.size());
  left("modules", state_->modules.size());
  left("contexts", state_->contexts);
  left("contexts made current", state_->current);
  return found;
}

}  // namespace pyc::cuda

// NOLINTEND(performance-no-int-to-ptr)
