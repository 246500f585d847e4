#include "cpp_test.h"
#include "services/partial_allreduce/grace.h"

namespace pyc {
namespace {

/// A round every second, whose quorum takes half of it; further ranks arrive `offsets` after the quorum.
void rounds(Grace& grace, RoundNumber first, int count, std::initializer_list<Seconds> offsets) {
  for (int i = 0; i < count; ++i) {
    const auto begin = static_cast<Seconds>(i);
    grace.start(begin);
    grace.reach(first + static_cast<RoundNumber>(i), begin + 0.5);
    for (const Seconds offset : offsets) grace.arrive(first + static_cast<RoundNumber>(i), begin + 0.5 + offset);
  }
}

}  // namespace

PYC_TEST(grace_is_as_long_as_the_quorum_took_while_few_offsets_are_known) {
  Grace grace;
  PYC_CHECK(grace.reach(0, 5) == 0);  // nothing is known of the first round
  grace.start(5);
  PYC_CHECK(grace.reach(1, 5.25) == 0.25);
}

PYC_TEST(grace_is_the_median_and_three_deviations_of_the_offsets) {
  Grace grace;
  rounds(grace, 0, 8, {0.0625, 0.0625, 0.125, 0.25});  // median 0.125 or 0.0625: the upper of the two in the middle
  grace.start(10);
  PYC_CHECK(grace.reach(100, 11) == 0.125 + 3 * 0.0625);
}

PYC_TEST(grace_is_no_longer_than_the_quorum_took) {
  Grace grace;
  rounds(grace, 0, 8, {0.25, 0.25, 0.25, 0.25});
  grace.start(10);
  PYC_CHECK(grace.reach(100, 10.125) == 0.125);
  grace.start(20);
  PYC_CHECK(grace.reach(101, 21) == 0.25);
}

PYC_TEST(grace_counts_late_calls_and_forgets_old_ones) {
  Grace grace;
  rounds(grace, 0, 40, {0.0625});
  for (RoundNumber round = 0; round < 32; ++round) grace.arrive(round + 8, static_cast<Seconds>(round) + 8.5 + 0.25);
  grace.start(100);
  PYC_CHECK(grace.reach(100, 110) == 0.25);
}

PYC_TEST(grace_does_not_count_what_is_later_than_it_remembers) {
  Grace grace;
  rounds(grace, 0, 64, {0.0625});
  rounds(grace, 64, 1, {});
  for (int i = 0; i < 32; ++i) grace.arrive(0, 1000);
  grace.start(100);
  PYC_CHECK(grace.reach(100, 110) == 0.0625);
}

PYC_TEST(grace_is_not_negative_if_an_arrival_seems_to_precede_the_quorum) {
  Grace grace;
  rounds(grace, 0, 1, {});
  for (int i = 0; i < 32; ++i) grace.arrive(0, 0);
  grace.start(100);
  PYC_CHECK(grace.reach(100, 110) == 0);
}

PYC_TEST(grace_after_a_flush_is_no_longer_than_the_quorum_before_it_took) {
  Grace grace;
  grace.start(0);
  grace.pause();
  PYC_CHECK(grace.reach(0, 100) == 0);
  rounds(grace, 0, 8, {0.25});
  grace.pause();
  PYC_CHECK(grace.reach(100, 1000) == 0.25);
  rounds(grace, 200, 32, {4});
  grace.pause();
  PYC_CHECK(grace.reach(300, 1000) == 0.5);
}

}  // namespace pyc
