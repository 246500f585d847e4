#!/usr/bin/env bash
# Runs the tests, with the pytest and mpirun on PATH. Ends at the first failure or hang.
#
#   tests/run.sh [PYTEST OPTION...]
#
# Options, e.g. `-k flush`, go to each pytest.
#   SUITES           which tests (default: model plan unit launch alone mpi; there are also: cluster, hosts)
#   SHAPES           of the suite mpi: flat (messages only), mixed (nodes of 2 or 3 ranks), board (default: all)
#   RANKS            the rank counts of the suite mpi (default: the tables below)
#   TRAINING         where the suite mpi tests what is built on the library, which sends no messages of its own (default:
#                    the tables below)
#   NIGHTLY          if not empty: tests marked `nightly`, all passes of the suite mpi, more cases of property tests, and
#                    checks that have passed with the same sources (tools/passed.py)
#   SECONDS_PER_RUN  the outer time limit of each pytest (default: 900, or 2700 if NIGHTLY)
set -euo pipefail
cd "$(dirname "$0")/.."

suites=${SUITES:-model plan unit launch alone mpi}
shapes=${SHAPES:-flat mixed board}
# What each pass of the suite mpi is for in CI: flat-1 the paths of one rank, flat-5 a tree of messages that is no power
# of two, mixed-3 both transports, mixed-5 three leaders of which one is alone, board-2 one transport on two ranks.
# Two ranks that send messages are a pass on the MPICH wheel (.ci/ci.steps).
declare -A ranks_of=([flat]="1 5" [mixed]="3 5" [board]="2")
with_training=${TRAINING:-board-2}
limit=${SECONDS_PER_RUN:-900}
again=
if [ -n "${NIGHTLY:-}" ]; then
  ranks_of=([flat]="1 2 3 4 5 7 8" [mixed]="3 5 6 8" [board]="2 3 8")
  with_training=${TRAINING:-flat-1 flat-5 mixed-3 board-2}
  export NIGHTLY PYC_TEST_CASES=${PYC_TEST_CASES:-96}
  limit=${SECONDS_PER_RUN:-2700}
  again=--again
fi
# A thread of OpenBLAS waits for work by polling: 0.16 s of a core at each import of NumPy, in thousands of ranks.
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
options=("$@")
[[ " $* " != *" -m "* ]] || { echo "-m is taken: it says which launched programs run side by side; use -k"; exit 2; }

# Temporary files go to memory if it has room. Checkpoints are forced to disk, and on a disk that is busy with a build
# that can take longer than a test may.
room=$(df --output=avail --block-size=1M /dev/shm 2>/dev/null | tail -n 1)
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && ((${room:-0} > 4096)); then
  in_memory=$(mktemp -d /dev/shm/pyc-tests.XXXX)
  export TMPDIR=$in_memory
  trap 'rm -rf "$in_memory"' EXIT
fi

# run SECONDS TITLE COMMAND...
run() {
  local seconds=$1 title=$2 status=0
  shift 2
  printf '\n### %s\n' "$title"
  timeout --kill-after=10 "$seconds" "$@" "${options[@]}" || status=$?
  case $status in
    0) ;;
    5) ((${#options[@]})) || { echo "### $title: no test was found"; exit 1; } ;;  # nothing selected is fine
    124 | 137 | 142) echo "### $title: hung, stopped after $seconds s"; exit 1 ;;  # 142: SIGALRM, of tests/mpi/passes.py
    *) echo "### $title: failed with status $status"; exit 1 ;;
  esac
}

# Whether the words of a list, the first argument, have the second among them.
has() {
  [[ " $1 " == *" $2 "* ]]
}

# Prints the passes of the suite mpi with so many ranks: SHAPE:RANKS_PER_NODE, with ":training" if tests/mpi/test_train_*
# and others of what is built on the library belong to them.
passes() {
  local n=$1 shape per_node
  for shape in $shapes; do
    has "${RANKS:-${ranks_of[$shape]}}" "$n" || continue
    case $shape in
      flat) per_node=1 ;;
      mixed) ((n > 2)) || continue; per_node=$((n > 6 ? 3 : 2)) ;;  # the last node may have fewer
      board) ((n > 1)) || continue; per_node=all ;;  # one rank is one node
    esac
    echo "$shape:$per_node$(has "$with_training" "$shape-$n" && echo :training)"
  done
}

# Every rank runs pytest, and rank 0 is heard. What fails on another rank is printed to stderr by tests/mpi/conftest.py.
# shellcheck disable=SC2016
rank_0_is_heard='[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exec >/dev/null; exec "$@"'

for shape in $shapes; do
  [ -n "${ranks_of[$shape]:-}" ] || { echo "SHAPES: expected flat, mixed or board, got $shape"; exit 1; }
done

for suite in $suites; do
  case $suite in
    model)
      models=(pytest --numprocesses=2 -rP --no-header tests/model)
      # Some of the tests are no reason to run none of them the next time.
      ((${#options[@]})) || models=(python tools/passed.py $again models "${models[@]}")
      run "$limit" "models" "${models[@]}"
      ;;
    plan)
      cases=${PYC_CASES:-${NIGHTLY:+10000}}
      run "$limit" "plans" env ${cases:+PYC_CASES=$cases} pytest --numprocesses=auto --dist=worksteal tests/plan
      ;;
    unit) run "$limit" "units" pytest --numprocesses=4 --dist=worksteal tests/unit ;;  # many sleep
    launch) run "$limit" "launched programs" pytest --numprocesses=4 --dist=worksteal -m "not alone" tests/launch ;;
    # Some measure, or look at all of the machine, and want it for themselves.
    alone) run "$limit" "launched programs, one at a time" pytest -m alone tests/launch ;;
    cluster | hosts)
      [ -z "${in_memory:-}" ] || unset TMPDIR  # nodes and hosts have a /dev/shm of their own
      case $suite in
        cluster) run "$limit" "jobs under SLURM" pytest tests/cluster ;;
        hosts) run "$limit" "several hosts" pytest --numprocesses=2 --dist=worksteal -rs tests/hosts ;;
      esac
      [ -z "${in_memory:-}" ] || export TMPDIR=$in_memory
      ;;
    mpi)
      for n in ${RANKS:-$(printf '%s\n' ${ranks_of[@]} | sort -nu)}; do
        mapfile -t of_n < <(passes "$n")
        ((${#of_n[@]})) || continue
        PYC_TEST_RANKS=$n run $(((limit + 30) * ${#of_n[@]})) "MPI, $n ranks: ${of_n[*]%%:*}" \
          tools/mpirun -n "$n" sh -c "$rank_0_is_heard" rank python tests/mpi/passes.py "$limit" "${of_n[@]}" --
      done
      ;;
    *) echo "SUITES: expected model, plan, unit, launch, alone, mpi, hosts or cluster, got $suite"; exit 1 ;;
  esac
done
