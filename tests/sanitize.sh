#!/usr/bin/env bash
# Runs tests of one process under a sanitizer.
#
#   tests/sanitize.sh asan|tsan SITE TEST...
#
# SITE is a folder with the package built by the CMake preset of that name; pytest and what it needs are on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=$1 site=$2
shift 2
report=$PWD/build/$sanitizer/report
rm -f "$report"*

# Python is not instrumented, so the runtime must be there before it, and the C++ library too, in which the runtime looks
# for the function that throws. pytest holds stderr back, hence a file. UCX's hooks into mmap crash under ThreadSanitizer.
# For thread-local memory its runtime guesses the layout of glibc 2.19, which asks now and then for 500 TB, and dies; the
# memory comes from malloc, which it sees anyway.
export PYTHONPATH=$site UCX_MEM_EVENTS=no PYC_CASES=${PYC_CASES:-50} PYC_MOST_RANKS=${PYC_MOST_RANKS:-17}
options=log_path=$report:halt_on_error=1

selection="not slow and not large"
[ "$sanitizer" = asan ] || selection+=" and not one_thread"
limit=${SECONDS_PER_RUN:-${NIGHTLY:+2700}}
status=0
timeout --kill-after=10 "${limit:-1200}" env \
  ASAN_OPTIONS="$options:detect_leaks=0" UBSAN_OPTIONS="$options:print_stacktrace=1" \
  TSAN_OPTIONS="$options:intercept_tls_get_addr=0:suppressions=$PWD/tests/tsan-suppressions.txt" \
  LD_PRELOAD="$(${CXX:-g++} -print-file-name="lib$sanitizer.so") $(${CXX:-g++} -print-file-name=libstdc++.so)" \
  pytest --numprocesses=4 --dist=worksteal --timeout=400 -o faulthandler_timeout=390 -p no:cacheprovider \
  -m "$selection" "$@" || status=$?

if compgen -G "$report*" >/dev/null; then
  cat "$report"*
  exit 1
fi
exit "$status"
