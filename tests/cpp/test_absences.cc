// Which ranks' data was absent from the rounds that a rank has received.
#include <cstdint>
#include <vector>

#include "cpp_test.h"
#include "services/partial_allreduce/absences.h"

namespace pyc {
namespace {

RoundInfo round(RoundNumber number, Rank size, const std::vector<Rank>& absent) {
  std::vector<std::uint64_t> words((static_cast<std::size_t>(size) + 63) / 64);
  for (Rank r = 0; r < size; ++r) words[static_cast<std::size_t>(r) / 64] |= std::uint64_t{1} << (r % 64);
  for (const Rank r : absent) words[static_cast<std::size_t>(r) / 64] &= ~(std::uint64_t{1} << (r % 64));
  RoundInfo info;
  info.round = number;
  info.contributor_count = static_cast<std::uint32_t>(size) - static_cast<std::uint32_t>(absent.size());
  info.contributors.assign(words.data(), words.size());
  return info;
}

void check(const Absences& absences, const std::vector<Absences::OfRank>& expected) {
  const auto found = absences.all();
  PYC_CHECK(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    PYC_CHECK(found[i].rank == expected[i].rank);
    PYC_CHECK(found[i].rounds == expected[i].rounds);
    PYC_CHECK(found[i].longest == expected[i].longest);
  }
}

}  // namespace

PYC_TEST(absences_are_counted_by_rank) {
  Absences absences(3);
  check(absences, {});
  absences.note(round(0, 3, {1}));
  absences.note(round(1, 3, {1, 2}));
  absences.note(round(2, 3, {2}));
  absences.note(round(5, 3, {1}));  // rounds 3 and 4 were not received
  check(absences, {{1, 3, 2}, {2, 2, 2}});
}

PYC_TEST(a_round_with_all_ranks_ends_a_row_of_absences) {
  Absences absences(2);
  for (const RoundNumber first : {0, 4}) {
    for (RoundNumber r = first; r < first + 3; ++r) absences.note(round(r, 2, {0}));
    absences.note(round(first + 3, 2, {}));
  }
  check(absences, {{0, 6, 3}});
}

PYC_TEST(a_round_that_several_calls_receive_counts_once) {
  Absences absences(2);
  for (int call = 0; call < 3; ++call) absences.note(round(4, 2, {1}));
  absences.note(round(3, 2, {0}));
  check(absences, {{1, 1, 1}});
}

PYC_TEST(absences_among_many_ranks) {
  for (const Rank size : {64, 65, 130}) {
    Absences absences(size);
    absences.note(round(0, size, {0, 63, size - 1}));
    absences.note(round(1, size, {size - 1}));
    if (size == 64) {
      check(absences, {{0, 1, 1}, {63, 2, 2}});
    } else {
      check(absences, {{0, 1, 1}, {63, 1, 1}, {size - 1, 2, 2}});
    }
  }
}

}  // namespace pyc
