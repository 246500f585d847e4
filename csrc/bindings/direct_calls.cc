#include "bindings/direct_calls.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "bindings/gil.h"

namespace pyc {

std::deque<DirectCalls::Kept> DirectCalls::end(bool waits, const std::string& name) {
  if (in_use_ && !waits) {
    throw std::runtime_error(name +
                             ": called while another thread, or this one, is in a call of this collective; one thread "
                             "at a time, or one collective per thread");
  }
  if (in_use_ && user_ != PyThread_get_thread_ident()) {
    const GilReleased released;
    while (in_use_) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  is_on_ = false;
  spare_.clear();
  kept_after_lookup_ = 0;
  return std::exchange(kept_, {});
}

}  // namespace pyc
