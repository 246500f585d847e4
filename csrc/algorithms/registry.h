// The allreduce algorithms of this build. An algorithm registers itself from its own file. Tests, benchmarks and
// documentation iterate over the registry, so a new algorithm changes no other file.
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
  // For documentation, with P ranks and S bytes.
  std::string steps;
  std::string bytes;  ///< sent per rank
  std::string reference;
  /// Every element takes the same path, so a part of the data that is reduced separately gets the same bits.
  bool is_uniform = false;
  // NOLINTBEGIN(readability-redundant-member-init): GCC warns where an initializer leaves out a member without one
  /// The cost with `size` ranks and `count` elements. Empty: "auto" does not choose it.
  std::function<Course(Rank size, std::size_t count)> course = {};
  /// Number of elements with which its plan has all its messages; more elements only make them longer. Empty: `size`.
  std::function<std::size_t(Rank size)> parts = {};

  // NAME:K with K > 0 is `variant(K)`. `variants` lists the variants among which "auto" chooses.
  std::function<AllreduceAlgorithm(Rank k)> variant = {};
  std::function<std::vector<Rank>(Rank size)> variants = {};
  // NOLINTEND(readability-redundant-member-init)
};

/// Throws std::invalid_argument if the name is taken.
void register_allreduce(AllreduceAlgorithm algorithm);

/// Finds NAME, or the variant NAME:K. Otherwise throws std::invalid_argument, which lists the known names.
AllreduceAlgorithm find_allreduce(const std::string& name);

std::vector<AllreduceAlgorithm> allreduce_algorithms();

/// The algorithms and variants among which "auto" chooses.
std::vector<AllreduceAlgorithm> allreduce_candidates(Rank size);

/// Registers an algorithm at load time. Goes at the end of the algorithm's file.
struct AllreduceRegistration {
  explicit AllreduceRegistration(AllreduceAlgorithm algorithm) { register_allreduce(std::move(algorithm)); }
};

}  // namespace pyc

#define PYC_ALLREDUCE(NAME, FUNCTION, ...) \
  static const ::pyc::AllreduceRegistration registration_##FUNCTION({.name = NAME, .build = FUNCTION, __VA_ARGS__})
