#!/usr/bin/env bash
# Runs the tests, with the pytest and mpirun on PATH. Ends at the first failure or hang.
#
#   tests/run.sh [PYTEST OPTION...]
#
# Options, e.g. `-k flush`, go to each pytest.
#   SUITES           which tests (default: model plan unit launch mpi; there is also: cluster)
#   SHAPES           of the suite mpi: flat (messages only), mixed (nodes of 2 or 3 ranks), board (default: all)
#   RANKS            the rank counts of the suite mpi (default: 1 2 3 4 5 7 8 flat, some of them in the other shapes)
#   SECONDS_PER_RUN  the outer time limit of each pytest (default: 900)
set -euo pipefail
cd "$(dirname "$0")/.."

suites=${SUITES:-model plan unit launch mpi}
declare -A ranks_of=([flat]="1 2 3 4 5 7 8" [mixed]="3 8" [board]="2 3 8")
shapes=${SHAPES:-flat mixed board}
limit=${SECONDS_PER_RUN:-900}
options=("$@")

# What stands on the library is tested in some of the shapes: it sends no messages of its own.
with_training=" flat-1 flat-5 mixed-3 board-2 "
training=(tests/mpi/test_ddp.py tests/mpi/test_torch.py tests/mpi/test_train_*.py)

# run TITLE COMMAND...
run() {
  local title=$1 status=0
  shift
  printf '\n### %s\n' "$title"
  timeout --kill-after=10 "$limit" "$@" "${options[@]}" || status=$?
  case $status in
    0) ;;
    5) ((${#options[@]})) || { echo "### $title: no test was found"; exit 1; } ;;  # nothing selected is fine
    124 | 137) echo "### $title: hung, stopped after $limit s"; exit 1 ;;
    *) echo "### $title: failed with status $status"; exit 1 ;;
  esac
}

# Every rank runs pytest, and rank 0 is heard. What fails on another rank is printed to stderr by tests/mpi/conftest.py.
# shellcheck disable=SC2016
rank_0_is_heard='[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || exec >/dev/null; exec "$@"'

for suite in $suites; do
  case $suite in
    model) run "models" pytest --numprocesses=2 -rP --no-header tests/model ;;
    plan) run "plans" pytest --numprocesses=auto tests/plan ;;
    unit) run "units" pytest --numprocesses=2 tests/unit ;;
    launch) run "launched programs" pytest tests/launch ;;
    cluster) run "jobs under SLURM" pytest tests/cluster ;;
    mpi)
      for shape in $shapes; do
        [ -n "${ranks_of[$shape]:-}" ] || { echo "SHAPES: expected flat, mixed or board, got $shape"; exit 1; }
        for n in ${RANKS:-${ranks_of[$shape]}}; do
          case $shape in
            flat) per_node=1 ;;
            mixed) per_node=$((n > 4 ? 3 : 2)) ;;  # the last node has fewer
            board) per_node=all ;;
          esac
          [ "$shape" = flat ] || ((n > 1)) || continue  # one rank is one node
          [ "$shape" != mixed ] || ((n > 2)) || continue
          [[ $with_training == *" $shape-$n "* ]] && left_out=() || left_out=("${training[@]/#/--ignore=}")
          PYC_TEST_RANKS=$n PYC_RANKS_PER_NODE=$per_node run "MPI, $n ranks, $shape" \
            tools/mpirun -n "$n" sh -c "$rank_0_is_heard" rank \
            pytest --with-mpi -p no:cacheprovider --color=no "${left_out[@]}" tests/mpi
        done
      done
      ;;
    *) echo "SUITES: expected model, plan, unit, launch, mpi or cluster, got $suite"; exit 1 ;;
  esac
done
