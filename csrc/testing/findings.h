// The findings of a check, as text. Only the first ones are kept: one flaw often shows on every rank.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace pyc {

class Findings {
 public:
  void add(std::string text) {
    if (++found_ <= kKept) texts_.push_back(std::move(text));
  }
  void add(const Schedule& plan, OpId op, const std::string& text) { add(place(plan, op) + ": " + text); }

  static std::string place(const Schedule& plan, OpId op) {
    return "rank " + std::to_string(plan.rank()) + ", " + plan.describe(op);
  }

  std::vector<std::string> texts() && {
    if (found_ > kKept) texts_.push_back("... and " + std::to_string(found_ - kKept) + " more");
    return std::move(texts_);
  }

 private:
  static constexpr std::size_t kKept = 20;

  std::size_t found_ = 0;
  std::vector<std::string> texts_;
};

}  // namespace pyc
