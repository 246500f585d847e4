// Tests of classes that have no binding. Each is a function that throws where something is wrong; pycollectives._testing
// knows all of them by name (csrc/bindings/testing_cpp.cc), and pytest runs them one by one.
#pragma once

#include <map>
#include <stdexcept>
#include <string>

namespace pyc::test {

using Test = void (*)();

inline std::map<std::string, Test>& all() {
  static std::map<std::string, Test> tests;
  return tests;
}

struct Registered {
  Registered(const char* name, Test test) { all()[name] = test; }
};

}  // namespace pyc::test

/// PYC_TEST(name) { ... }
#define PYC_TEST(name)                                             \
  static void name();                                              \
  static const pyc::test::Registered registered_##name{#name, name}; \
  static void name()

#define PYC_CHECK(condition)                                                                              \
  if (!(condition)) {                                                                                     \
    throw std::logic_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": not " #condition); \
  }                                                                                                       \
  static_assert(true)
