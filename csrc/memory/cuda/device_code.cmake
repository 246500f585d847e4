# The device code of csrc/memory/cuda: sets PYC_FAT_BINARY to the file that the build makes of kernels.cu and
# PYC_FAT_BINARY_ARCHITECTURES to what it is for, as `info` says it, and PYC_FAT_BINARY_CUDA to nvcc's version, or
# PYC_NO_FAT_BINARY to why there is none, and PYC_KERNEL_FILES to what it is made of. PYC_CUDA=ON insists on it.

set(kernels ${PROJECT_SOURCE_DIR}/csrc/memory/cuda/kernels.cu)
set(PYC_KERNEL_FILES ${kernels})  # and what it includes
foreach(header cuda/kernels.cuh cuda/kernel_list.h cuda/kernel_arguments.h functors.inc)
  list(APPEND PYC_KERNEL_FILES ${PROJECT_SOURCE_DIR}/csrc/memory/${header})
endforeach()
set(PYC_CUDA_ARCHITECTURES "75;80;86;89;90" CACHE STRING "Compute capabilities to make machine code for; the last also PTX")

find_program(PYC_NVCC nvcc HINTS ENV CUDA_HOME PATH_SUFFIXES bin PATHS /usr/local/cuda DOC "The CUDA compiler")
find_program(PYC_CCACHE ccache)

set(PYC_NO_FAT_BINARY "")
if(NOT PYC_NVCC)
  set(PYC_NO_FAT_BINARY "no nvcc was found when it was built (looked on PATH, in CUDA_HOME and in /usr/local/cuda)")
elseif(NOT CMAKE_OBJCOPY)
  set(PYC_NO_FAT_BINARY "no objcopy was found when it was built")
else()
  set(options -std=c++17 -O3 --fmad=false --threads 0 -I ${PROJECT_SOURCE_DIR}/csrc)
  foreach(architecture IN LISTS PYC_CUDA_ARCHITECTURES)
    list(APPEND options -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(GET PYC_CUDA_ARCHITECTURES -1 newest)
  list(APPEND options -gencode=arch=compute_${newest},code=compute_${newest})
  execute_process(COMMAND ${PYC_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" version "${version}")
  set(PYC_FAT_BINARY_CUDA "${CMAKE_MATCH_1}")
  # Without it the code is ten times as large. Every driver for CUDA 13 unpacks it; of those for CUDA 12, the first do
  # not.
  if(PYC_FAT_BINARY_CUDA VERSION_GREATER_EQUAL 13)
    list(APPEND options --compress-mode=size)
  endif()

  # Whether this nvcc has a compiler of the host that it accepts, and knows the architectures.
  set(tried ${PYC_NVCC} ${options})
  if(NOT "${PYC_NVCC_WORKS}" STREQUAL "${tried}")
    set(trial ${PROJECT_BINARY_DIR}/cuda/trial.cu)
    file(WRITE ${trial} "struct S { int i[600]; };\n__global__ void k(const __grid_constant__ S s, int* p) { *p = s.i[0]; }\n")
    execute_process(COMMAND ${PYC_NVCC} ${options} -c ${trial} -o ${trial}.o
                    OUTPUT_VARIABLE error ERROR_VARIABLE error RESULT_VARIABLE failed)
    if(failed)
      string(REGEX REPLACE "\n.*" "" error "${error}")
      string(REPLACE "\"" "'" error "${error}")
      set(PYC_NO_FAT_BINARY "${PYC_NVCC} could not compile when it was built: ${error}")
    else()
      set(PYC_NVCC_WORKS "${tried}" CACHE INTERNAL "The command that compiled a trial")
    endif()
  endif()
endif()

if(PYC_NO_FAT_BINARY AND PYC_CUDA STREQUAL "ON")
  message(FATAL_ERROR "PYC_CUDA=ON, but ${PYC_NO_FAT_BINARY}. Put nvcc on PATH, set CUDA_HOME, or build with PYC_CUDA=AUTO.")
elseif(PYC_NO_FAT_BINARY)
  message(STATUS "CUDA: ${PYC_NO_FAT_BINARY}")
else()
  # As an object file, which compiler caches know, and from it the fat binary.
  set(PYC_FAT_BINARY ${PROJECT_BINARY_DIR}/cuda/kernels.fatbin)
  list(TRANSFORM PYC_CUDA_ARCHITECTURES REPLACE "([0-9][a-z]?)$" ".\\1" OUTPUT_VARIABLE capabilities)
  list(JOIN capabilities ", " PYC_FAT_BINARY_ARCHITECTURES)
  list(GET capabilities -1 newest)
  string(APPEND PYC_FAT_BINARY_ARCHITECTURES ", and as PTX of ${newest}")
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/cuda)
  add_custom_command(
    OUTPUT ${PYC_FAT_BINARY}
    COMMAND $<$<BOOL:${PYC_CCACHE}>:${PYC_CCACHE}> ${PYC_NVCC} ${options} -c ${kernels} -o ${PYC_FAT_BINARY}.o
    COMMAND ${CMAKE_OBJCOPY} -O binary --only-section=.nv_fatbin ${PYC_FAT_BINARY}.o ${PYC_FAT_BINARY}
    DEPENDS ${PYC_KERNEL_FILES}
    COMMENT "Compiling CUDA kernels for ${PYC_CUDA_ARCHITECTURES}"
    COMMAND_EXPAND_LISTS VERBATIM)
  message(STATUS "CUDA: ${PYC_NVCC}, for ${PYC_CUDA_ARCHITECTURES}")
endif()
