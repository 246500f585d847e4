// The allreduce algorithms that this build knows. An algorithm registers itself from its own file; tests, benchmarks
// and documentation iterate the registry, so adding one touches nothing else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "algorithms/cost.h"
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
  // NOLINTBEGIN(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
  /// What it costs with `size` ranks and `count` elements. Empty: "auto" does not choose it.
  std::function<Course(Rank size, std::size_t count)> course = {};
  /// Elements with which its plan has all its messages; with more they only get longer. Empty: `size`.
  std::function<std::size_t(Rank size)> parts = {};

  // The name NAME:K, K > 0, means `variant(K)`. `variants`: those among which "auto" chooses.
  std::function<AllreduceAlgorithm(Rank k)> variant = {};
  std::function<std::vector<Rank>(Rank size)> variants = {};
  // NOLINTEND(readability-redundant-member-init)
};

/// std::invalid_argument if the name is taken.
void register_allreduce(AllreduceAlgorithm algorithm);

/// By its name, or a variant by NAME:K; std::invalid_argument naming the known ones if there is none.
AllreduceAlgorithm find_allreduce(const std::string& name);

std::vector<AllreduceAlgorithm> allreduce_algorithms();

/// Those among which "auto" chooses, with their variants: those that state what they cost.
std::vector<AllreduceAlgorithm> allreduce_candidates(Rank size);

/// Registers at load time; goes at the end of the algorithm's file.
struct AllreduceRegistration {
  explicit AllreduceRegistration(AllreduceAlgorithm algorithm) { register_allreduce(std::move(algorithm)); }
};

}  // namespace pyc

#define PYC_ALLREDUCE(NAME, FUNCTION, ...) \
  static const ::pyc::AllreduceRegistration registration_##FUNCTION({.name = NAME, .build = FUNCTION, __VA_ARGS__})
