#include "memory/cuda/fat_binary.h"

#if defined(PYC_FAT_BINARY)
// NOLINTBEGIN(portability-no-assembler,readability-identifier-naming): a file in the middle of C++
__asm__(
    ".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden pyc_fat_binary, pyc_fat_binary_end\n"
    ".globl pyc_fat_binary, pyc_fat_binary_end\n"
    "pyc_fat_binary:\n"
    ".incbin \"" PYC_FAT_BINARY
    "\"\n"
    "pyc_fat_binary_end:\n"
    ".popsection\n");
extern "C" const std::byte pyc_fat_binary[];
extern "C" const std::byte pyc_fat_binary_end[];
// NOLINTEND(portability-no-assembler,readability-identifier-naming)
#endif

namespace pyc::cuda {

#if defined(PYC_FAT_BINARY)
std::span<const std::byte> fat_binary() { return {pyc_fat_binary, pyc_fat_binary_end}; }
const char* fat_binary_architectures() { return PYC_FAT_BINARY_ARCHITECTURES; }
const char* fat_binary_cuda() { return PYC_FAT_BINARY_CUDA; }
const char* why_no_fat_binary() { return ""; }
#else
std::span<const std::byte> fat_binary() { return {}; }
const char* fat_binary_architectures() { return ""; }
const char* fat_binary_cuda() { return ""; }
const char* why_no_fat_binary() { return PYC_NO_FAT_BINARY; }
#endif

}  // namespace pyc::cuda
