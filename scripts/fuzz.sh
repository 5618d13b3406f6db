#!/usr/bin/env bash
# Builds the fuzzers of the file readers (tests/fuzz) with clang and runs each for some seconds, all at the same
# time. What they find new is kept in build/fuzz/found; an input that breaks a reader is kept and named.
#
#   ./scripts/fuzz.sh [SECONDS]      default: 30
#
# clang warns where gcc, whose warnings are errors, does not: here they stay warnings.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-30}
declare -A seeds=([safetensors_fuzz]=tests/train/fixtures/llama_grouped [tokenizer_json_fuzz]=tests/data/fixtures)
KATA_WERROR=OFF ./scripts/build.sh fuzz "${!seeds[@]}"

pids=()
for name in "${!seeds[@]}"; do
  mkdir -p "build/fuzz/found/$name"
  "build/fuzz/bin/$name" -max_total_time="$seconds" -max_len=60000 -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/found/$name" "${seeds[$name]}" >"build/fuzz/$name.log" 2>&1 &
  pids+=("$!")
done
status=0
for name in "${!seeds[@]}"; do
  if wait "${pids[0]}"; then
    echo "$name: nothing found, $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "build/fuzz/$name.log")(s)"
  else
    status=1
    echo "fuzz.sh: error: $name broke; the end of build/fuzz/$name.log:" >&2
    tail -n 40 "build/fuzz/$name.log" >&2
  fi
  pids=("${pids[@]:1}")
done
exit "$status"
