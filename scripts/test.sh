#!/usr/bin/env bash
# Installs packages, builds build/cpu and runs every test. The last line is "N passed, N failed".
#
#   ./scripts/test.sh                  all tests
#   ./scripts/test.sh -R RmsNorm       arguments go to ctest
#   KATA_PRESET=asan ./scripts/test.sh another preset
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${KATA_PRESET:-cpu}
./scripts/build.sh "$preset"

# Tests run side by side and each has its own threads: waiting threads must sleep, not spin.
export OMP_WAIT_POLICY=passive
report=$PWD/build/$preset/tests.xml
rm -f "$report" "build/$preset/tests.txt"
status=0
ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --parallel "$(nproc)" \
  --output-junit "$report" "$@" </dev/null || status=$?

count() { sed -n "s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p;/^[[:space:]]*>/q" "$report" | head -n 1; }
[ -s "$report" ] || {
  echo "test.sh: error: ctest ran no test (exit code $status)" >&2
  exit 1
}
total=$(count tests) failed=$(count failures) skipped=$(($(count skipped) + $(count disabled)))
echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped" | tee "build/$preset/tests.txt"
exit "$status"
