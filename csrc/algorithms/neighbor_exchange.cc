#include "algorithms/neighbor_exchange.h"

namespace pyc {

void neighbor_exchange(ScheduleBuilder& s, Slice values) {
  if (s.rank() == kGiver) {
    s.send(values, kTaker);
  } else {
    s.recv(values, kGiver);
  }
}

}  // namespace pyc
