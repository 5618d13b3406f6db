#!/usr/bin/env bash
# What CI cannot do without a GPU: builds the CUDA preset, tests and times it. Each part takes less than 8
# minutes on 16 cores and one H200, prints a summary of one screen, and ends with "gpu_test PART: passed" or
# "... failed".
#
#   ./scripts/gpu_test.sh build       the preset cuda, on all cores
#   ./scripts/gpu_test.sh tests       the tests that need a GPU (ctest -L gpu runs the same ones one by one)
#   ./scripts/gpu_test.sh sanitize    compute-sanitizer over the tests of ops: memcheck, racecheck, initcheck
#   ./scripts/gpu_test.sh train       a short run of the 340M model, another of the same bits, one resumed
#   ./scripts/gpu_test.sh bench       katabench on the GPU, and the step beside PyTorch (bench_peers.py)
#
# FILTER=Pattern of GoogleTest chooses tests; RESULTS=DIR keeps the logs there (default build/gpu_test);
# LIMIT=440 is the most seconds of one shard of sanitize.
set -euo pipefail
cd "$(dirname "$0")/.."

part=${1:?"gpu_test.sh: error: no part given; expected build, tests, sanitize, train or bench"}
results=${RESULTS:-build/gpu_test}
bin=build/cuda/bin
mkdir -p "$results"
log=$results/$part.log

about() {
  echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%Y-%m-%d)," \
    "$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1), $(nproc) cores"
}

build() {
  export PATH=$PATH:/usr/local/cuda/bin
  cmake --preset cuda >"$log" 2>&1 && cmake --build --preset cuda --parallel "$(nproc)" >>"$log" 2>&1 || {
    grep -E -A 12 'error|FAILED' "$log" | head -n 60
    return 1
  }
  tail -n 2 "$log"
}

tests() {
  local status=0
  "$bin/test_kernels" --gtest_brief=1 --gtest_filter="${FILTER:-*}" >"$log" 2>&1 || status=$?
  grep -E '^\[  FAILED  \]|^\[  PASSED|SKIPPED' "$log" | sort | uniq -c | head -n 60
  return "$status"
}

# Three tools over the tests of ops (whole models and long sequences take too long under them), each in shards
# that run at the same time.
sanitize() {
  local status=0 tool shard shards=5 name pids=()
  for tool in memcheck racecheck initcheck; do
    for ((shard = 0; shard < shards; ++shard)); do
      GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard OMP_NUM_THREADS=1 timeout "${LIMIT:-440}" \
        compute-sanitizer --tool "$tool" --error-exitcode 9 "$bin/test_kernels" --gtest_brief=1 \
        --gtest_filter="${FILTER:-*-CudaTraining*:*ManyPieces:*GroupsOfPairs}" >"$results/$tool.$shard.log" 2>&1 &
      pids+=($!)
    done
  done
  for tool in memcheck racecheck initcheck; do
    for ((shard = 0; shard < shards; ++shard)); do
      wait "${pids[0]}" || status=1
      pids=("${pids[@]:1}")
      name=$results/$tool.$shard.log
      echo "$tool $((shard + 1))/$shards: $(grep -oE 'ERROR SUMMARY.*|RACECHECK SUMMARY.*' "$name" | tail -n 1 ||
        echo 'not finished')$(sed -nE 's/^\[  PASSED  \] ([0-9]+ tests?).*/, \1 passed/p' "$name")"
    done
  done
  return "$status"
}

# The last of a run's metrics, without what depends on the clock.
metrics() { sed -E 's/"(tokens_per_s|mfu)":[^,}]*,?//g' "$1/metrics.jsonl"; }

train() {
  local runs config=configs/lm340m_psd.yaml options
  runs=$(mktemp -d)
  options=(--config "$config" --set train.batch_tokens=32768 --set train.validate_every=0 --set train.checkpoint_every=25)
  "$bin/katatrain" "${options[@]}" --steps 50 --output "$runs/a" >"$log" 2>&1
  "$bin/katatrain" "${options[@]}" --steps 50 --output "$runs/b" >>"$log" 2>&1
  cmp <(metrics "$runs/a") <(metrics "$runs/b") && echo "two runs of 50 steps: equal to the bit"
  rm -r "$runs"/b/checkpoints/step-00000050
  echo step-00000025 >"$runs/b/checkpoints/latest"
  "$bin/katatrain" "${options[@]}" --steps 50 --output "$runs/b" --resume >>"$log" 2>&1
  cmp <(metrics "$runs/a") <(metrics "$runs/b") && echo "resumed at step 25: equal to the bit"
  cmp "$runs/a/checkpoints/step-00000050/model.safetensors" "$runs/b/checkpoints/step-00000050/model.safetensors" &&
    echo "weights of the resumed run: equal to the bit"
  sed -n '1p;10p;$p' "$runs/a/metrics.jsonl"
  rm -r "$runs"
}

bench() {
  "$bin/katabench" --device cuda --json "$results/katabench.json" | tee "$results/katabench.txt"
  python3 scripts/bench_peers.py --gpu --build build/cuda --json "$results/peers.json"
}

began=$SECONDS
about
case "$part" in
  build | tests | sanitize | train | bench)
    set +e  # the part itself stops at its first error
    (set -e; "$part")
    status=$?
    ;;
  *)
    echo "gpu_test.sh: error: no part '$part'; expected build, tests, sanitize, train or bench" >&2
    exit 2
    ;;
esac
echo "gpu_test $part: $([ "$status" -eq 0 ] && echo passed || echo failed), $((SECONDS - began)) s, log $log"
exit "$status"
