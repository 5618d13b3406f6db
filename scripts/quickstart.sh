#!/usr/bin/env bash
# From a clone to a trained and evaluated model: installs packages, builds, makes the corpus, trains
# configs/quickstart.yaml, writes a sample, compares with gzip, and runs the recall suite in its quick version.
#
#   ./scripts/quickstart.sh            continues what an earlier call left unfinished
#   ./scripts/quickstart.sh --fresh    trains again from the start
#
# Fails where a stage fails, and where the model's bits per byte are not below those of gzip -9.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=build/cpu/bin
run=runs/quickstart
corpus=data/corpus
begin=$SECONDS
current="the start"

fail() {
  echo "quickstart.sh: error: $*" >&2
  exit 1
}
on_exit() {
  local code=$?
  [ "$code" -eq 0 ] || echo "quickstart.sh: error: $current failed (exit code $code)" >&2
}
trap on_exit EXIT

# stage NAME COMMAND...: with the time that it took.
stage() {
  current=$1
  local began=$SECONDS
  printf '\n== %s\n' "$current"
  "${@:2}"
  printf '== %s: %d s, %d s in all\n' "$current" $((SECONDS - began)) $((SECONDS - begin))
}

case "${1:-}" in
  "") ;;
  --fresh) rm -rf "$run" runs/eval-mqar-quick ;;
  *) fail "unknown argument '$1'; expected nothing or --fresh" ;;
esac

build() { ./scripts/build.sh cpu katatrain kataeval katagen katadata; }

# Shards that this script made may be replaced; any others in the folder are left alone.
make_corpus() {
  local stamp=$corpus/.made_by_quickstart now
  now=$(cksum <data/kjv.txt.gz)
  [ "$(cat "$stamp" 2>/dev/null)" != "$now" ] || return 0
  if [ ! -e "$stamp" ] && compgen -G "$corpus/*.bin" >/dev/null; then
    fail "$corpus holds shards that this script has not made; move them away"
  fi
  mkdir -p "$corpus"
  echo unfinished >"$stamp"
  gzip -dc data/kjv.txt.gz |
    "$bin/katadata" tokenize --input - --output "$corpus" --validation-fraction 0.05 --overwrite
  echo "$now" >"$stamp"
}

# A run without a checkpoint holds nothing to go on from. A finished one is opened all the same: katatrain then refuses
# a config that is no longer the run's.
train() {
  if [ -e "$run/checkpoints/latest" ]; then
    [ "$(cat "$run/checkpoints/latest")" != "$(printf 'step-%08d' "$(sed -n 's/^  steps: //p' "$run/config.yaml")")" ] ||
      echo "$run is finished; ./scripts/quickstart.sh --fresh trains it again"
    "$bin/katatrain" --config configs/quickstart.yaml --output "$run" --resume ||
      fail "$run could not be continued, the reason is above; ./scripts/quickstart.sh --fresh starts over"
  else
    rm -rf "$run"
    "$bin/katatrain" --config configs/quickstart.yaml --output "$run"
  fi
}

sample() {
  "$bin/katagen" --checkpoint "$run" --prompt "And it came to pass" --tokens 400 --temperature 0.7 --seed 1
}

# The model's figure covers every byte of the validation text but the first (train.validate_batches is 0).
compare() {
  local bytes packed gzip_bits model_bits
  grep -q '^ *validate_batches: 0$' "$run/config.yaml" ||
    fail "$run/config.yaml: train.validate_batches is not 0, so the last validation is not over the whole text"
  bytes=$("$bin/katadata" detokenize "$corpus/validation.bin" | wc -c)
  packed=$("$bin/katadata" detokenize "$corpus/validation.bin" | gzip -9 | wc -c)
  gzip_bits=$(awk "BEGIN {printf \"%.4f\", 8 * $packed / $bytes}")
  model_bits=$(tail -n 1 "$run/metrics.jsonl" | sed -n 's/.*"validation_bits_per_byte": *\([0-9.eE+-]*\).*/\1/p')
  [ -n "$model_bits" ] || fail "$run/metrics.jsonl: no validation_bits_per_byte in the last line"
  echo "the last 5% of the text, $bytes bytes, in bits per byte:"
  printf '  %-28s %.4f\n' "$run" "$model_bits"
  printf '  %-28s %.4f\n' "gzip -9" "$gzip_bits"
  awk "BEGIN {exit !($model_bits < $gzip_bits)}" || fail "the model is not below gzip -9"
}

recall() { "$bin/kataeval" --suite mqar --quick; }

stage "packages and build" build
stage "corpus" make_corpus
stage "training" train
stage "a sample" sample
stage "bits per byte" compare
stage "recall" recall
