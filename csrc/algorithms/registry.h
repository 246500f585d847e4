// The allreduce algorithms that this build knows. An algorithm registers itself from its own file; tests, benchmarks
// and documentation iterate the registry, so adding one touches nothing else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schedule/builder.h"

namespace pyc {

struct AllreduceAlgorithm {
  std::string name;
  std::function<void(ScheduleBuilder&, Operands)> build;
  // For people: with P ranks and S bytes.
  std::string steps;
  std::string bytes;  ///< sent per rank
  std::string reference;
  /// Every element takes the same way: a part of the data that is reduced by itself gets the same bits.
  bool is_uniform = false;
};

/// std::invalid_argument if the name is taken.
void register_allreduce(AllreduceAlgorithm algorithm);

/// std::invalid_argument naming the known ones if there is none of that name.
const AllreduceAlgorithm& find_allreduce(const std::string& name);

std::vector<AllreduceAlgorithm> allreduce_algorithms();

/// Registers at load time; goes at the end of the algorithm's file.
struct AllreduceRegistration {
  explicit AllreduceRegistration(AllreduceAlgorithm algorithm) { register_allreduce(std::move(algorithm)); }
};

}  // namespace pyc

#define PYC_ALLREDUCE(NAME, FUNCTION, ...) \
  static const ::pyc::AllreduceRegistration registration_##FUNCTION({.name = NAME, .build = FUNCTION, __VA_ARGS__})
