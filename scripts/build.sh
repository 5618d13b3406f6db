#!/usr/bin/env bash
# Installs packages, configures and builds one preset of CMakePresets.json into build/<preset>.
#
#   ./scripts/build.sh PRESET [TARGET...]    default: every target
#
# KATA_WERROR=ON|OFF sets that option; unset, the build folder keeps what it has (OFF at first).
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:?"build.sh: error: no preset given; expected cpu, cuda, asan, fuzz or release"}
shift
./scripts/install_packages.sh

log=$(mktemp)
trap 'rm -f "$log"' EXIT
options=()
[ -z "${KATA_WERROR:-}" ] || options+=("-DKATA_WERROR=$KATA_WERROR")
if ! cmake --preset "$preset" "${options[@]}" >"$log" 2>&1; then
  cat "$log" >&2
  echo "build.sh: error: cmake could not configure build/$preset, its output is above" >&2
  exit 1
fi
targets=()
[ $# -eq 0 ] || targets=(--target "$@")
cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}" || {
  echo "build.sh: error: build/$preset did not build, the compiler's messages are above" >&2
  exit 1
}
