#!/usr/bin/env bash
# Runs tests of one process under a sanitizer, each TEST, a file or folder, in a pytest of its own.
#
# Once in some thousand tests, each of which starts threads, ThreadSanitizer of GCC 12 asks for a shadow of 500 TB and
# ends the process. That says nothing of the tests; so if nothing else has failed that pytest is run again, four times at most.
#
#   tests/sanitize.sh asan|tsan SITE TEST...
#
# SITE is a folder with the package built by the CMake preset of that name; pytest and what it needs are on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=$1 site=$2
shift 2
report=$PWD/build/$sanitizer/report
output=$PWD/build/$sanitizer/output
rm -f "$report"*

# Python is not instrumented, so the runtime must be there before it, and the C++ library too, in which the runtime looks
# for the function that throws. pytest holds stderr back, hence a file. UCX's hooks into mmap crash under ThreadSanitizer.
export PYTHONPATH=$site UCX_MEM_EVENTS=no PYC_CASES=${PYC_CASES:-1000}
options=log_path=$report:halt_on_error=1

run() {
  timeout --kill-after=10 "${SECONDS_PER_RUN:-1200}" env \
    ASAN_OPTIONS="$options:detect_leaks=0" UBSAN_OPTIONS="$options:print_stacktrace=1" \
    TSAN_OPTIONS="$options:suppressions=$PWD/tests/tsan-suppressions.txt" \
    LD_PRELOAD="$(${CXX:-g++} -print-file-name="lib$sanitizer.so") $(${CXX:-g++} -print-file-name=libstdc++.so)" \
    pytest --numprocesses=auto -p no:cacheprovider -m "not slow" "$1" | tee "$output"
}

only_the_sanitizer_failed() {
  compgen -G "$report*" >/dev/null || return 1
  ! grep --quiet --invert-match "ThreadSanitizer failed to allocate" "$report"* || return 1
  grep -E "^(FAILED|ERROR) " "$output" | cut -d ' ' -f 2 | while read -r failed; do
    grep --quiet --fixed-strings "crashed while running '$failed" "$output" || return 1
  done
}

for test in "$@"; do
  for attempt in 1 2 3 4 5; do
    status=0
    run "$test" || status=$?
    only_the_sanitizer_failed && ((attempt < 5)) || break
    printf '### %s: the sanitizer failed itself:\n%s\n' "$test" "$(cat "$report"*)"
    rm "$report"*
  done
  ((status == 5)) && status=0  # all of its tests are slow
  ((status == 0)) || break
done

if compgen -G "$report*" >/dev/null; then
  cat "$report"*
  exit 1
fi
exit "$status"
