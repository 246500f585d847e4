#include <utility>
#include <vector>

#include "cpp_test.h"
#include "engine/heartbeat.h"

namespace pyc {
namespace {

constexpr Seconds kLimit = 10;

/// Three machines of two ranks each, whose lowest ranks speak to each other.
struct Machines {
  Machines() {
    for (Heartbeat* h : {&first, &second, &third}) h->start({0, 0, 1, 1, 2, 2}, kLimit, 0);
  }

  /// What rank 0 hears when a machine speaks.
  std::vector<std::byte> said_to_first(Heartbeat& by, const std::vector<Rank>& dead) {
    sent.clear();
    by.speak(dead);
    for (const auto& [to, message] : sent) {
      if (to == 0) return message;
    }
    throw std::logic_error("nothing was said to rank 0");
  }

  std::vector<std::pair<Rank, std::vector<std::byte>>> sent;
  SendControl send = [this](Rank to, ConstBytes message) {
    sent.emplace_back(to, std::vector<std::byte>(message.begin(), message.end()));
  };
  Heartbeat first{0, send};
  Heartbeat second{2, send};
  Heartbeat third{4, send};
};

}  // namespace

PYC_TEST(heartbeat_keeps_deaths_that_another_machine_does_not_know) {
  Machines m;
  const auto death = m.said_to_first(m.second, {3});
  const auto nothing = m.said_to_first(m.third, {});
  m.first.on_message(2, death, 1);
  m.first.on_message(4, nothing, 1);
  PYC_CHECK(m.first.dead() == std::vector<Rank>{3});
  m.first.on_message(4, m.said_to_first(m.third, {5}), 2);
  PYC_CHECK((m.first.dead() == std::vector<Rank>{3, 5}));
}

PYC_TEST(heartbeat_takes_a_silent_machine_for_lost_after_the_limit) {
  Machines m;
  const auto nothing = m.said_to_first(m.third, {});
  for (Seconds now = 1; now <= kLimit; ++now) {
    m.first.on_message(4, nothing, now);
    PYC_CHECK(m.first.lost(now).empty());
  }
  m.first.on_message(4, nothing, kLimit + 1);
  PYC_CHECK((m.first.lost(kLimit + 1) == std::vector<Rank>{2, 3}));
}

PYC_TEST(heartbeat_begins_anew_after_a_pause_of_its_own) {
  Machines m;
  PYC_CHECK(m.first.lost(1).empty());
  PYC_CHECK(m.first.lost(1 + 2 * kLimit).empty());  // this process may have been stopped
}

PYC_TEST(heartbeat_names_more_deaths_than_one_message_holds) {
  std::vector<int> machines(64, 0);
  machines.back() = 1;
  std::vector<std::vector<std::byte>> sent;
  Heartbeat speaks(0, [&](Rank, ConstBytes message) { sent.emplace_back(message.begin(), message.end()); });
  Heartbeat hears(63, [](Rank, ConstBytes) {});
  for (Heartbeat* h : {&speaks, &hears}) h->start(machines, kLimit, 0);
  std::vector<Rank> dead;
  for (Rank r = 1; r < 41; ++r) dead.push_back(r);
  speaks.speak(dead);
  for (const auto& message : sent) hears.on_message(0, message, 1);
  PYC_CHECK(hears.dead() == dead);
}

}  // namespace pyc
