#include "memory/cuda/kernel_sources.h"

// NOLINTBEGIN(portability-no-assembler,bugprone-macro-parentheses): files in the middle of C++
#define PYC_EMBED(symbol, file)            \
  __asm__(                                 \
      ".pushsection .rodata\n"             \
      ".hidden pyc_source_" #symbol        \
      "\n"                                 \
      ".globl pyc_source_" #symbol         \
      "\n"                                 \
      "pyc_source_" #symbol                \
      ":\n"                                \
      ".incbin \"" PYC_KERNEL_SOURCES file \
      "\"\n"                               \
      ".byte 0\n"                          \
      ".popsection\n");                    \
  extern "C" const char pyc_source_##symbol[]

PYC_EMBED(kernels, "/memory/cuda/kernels.cu");
PYC_EMBED(bodies, "/memory/cuda/kernels.cuh");
PYC_EMBED(list, "/memory/cuda/kernel_list.h");
PYC_EMBED(arguments, "/memory/cuda/kernel_arguments.h");
PYC_EMBED(functors, "/memory/functors.inc");
#undef PYC_EMBED
// NOLINTEND(portability-no-assembler,bugprone-macro-parentheses)

namespace pyc::cuda {
namespace {

constexpr char kCstddef[] =
    "#pragma once\n"
    "namespace std { using size_t = decltype(sizeof(0)); enum class byte : unsigned char {}; }\n";

constexpr char kCstdint[] =
    "#pragma once\n"
    "namespace std {\n"
    "using int8_t = signed char; using int16_t = short; using int32_t = int; using int64_t = long;\n"
    "using uint8_t = unsigned char; using uint16_t = unsigned short; using uint32_t = unsigned;\n"
    "using uint64_t = unsigned long; using uintptr_t = unsigned long;\n"
    "}\n";

const KernelSource kSources[] = {
    {"kernels.cu", pyc_source_kernels},
    {"memory/cuda/kernels.cuh", pyc_source_bodies},
    {"memory/cuda/kernel_list.h", pyc_source_list},
    {"memory/cuda/kernel_arguments.h", pyc_source_arguments},
    {"memory/functors.inc", pyc_source_functors},
    {"cstddef", kCstddef},
    {"cstdint", kCstdint},
};

}  // namespace

std::span<const KernelSource> kernel_sources() { return kSources; }

}  // namespace pyc::cuda
