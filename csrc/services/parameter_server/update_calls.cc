#include "services/parameter_server/update_calls.h"

namespace pyc::server {

void UpdateCalls::ask(std::byte* weights) {
  const std::lock_guard lock(mutex_);
  weights_ = weights;
  changed_.notify_one();
}

bool UpdateCalls::is_done() const {
  const std::lock_guard lock(mutex_);
  return weights_ == nullptr;
}

bool UpdateCalls::has_thrown() const {
  const std::lock_guard lock(mutex_);
  return has_thrown_;
}

void UpdateCalls::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_one();
}

void UpdateCalls::serve() {
  std::unique_lock lock(mutex_);
  while (!has_thrown_) {
    changed_.wait(lock, [this] { return ended_ || weights_ != nullptr; });
    if (ended_) return;
    std::byte* const weights = weights_;
    lock.unlock();
    call(weights);
    lock.lock();
  }
}

void UpdateCalls::call(std::byte* weights) {
  const auto finish = [this](bool throws) {
    const std::lock_guard lock(mutex_);
    weights_ = nullptr;
    has_thrown_ = throws;
  };
  try {
    function_(weights, gradient_.get());
  } catch (...) {
    finish(true);
    throw;
  }
  finish(false);
}

}  // namespace pyc::server
