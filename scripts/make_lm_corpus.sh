#!/usr/bin/env bash
# Makes data/lm, which the configs lm340m_*.yaml train on: English prose out of the distribution's documentation
# packages, all of them free, as token shards of a sentencepiece model that is trained on the same text.
#
#   ./scripts/make_lm_corpus.sh [OUTPUT]      default: data/lm
#
#   OUTPUT/tokenizer.model                      32,000 pieces
#   OUTPUT/train-000000.bin, validation.bin     uint16 tokens; 1% of the documents are for validation
#   OUTPUT/SOURCES.md                           name, version and licence of every package
#
# KATA_VOCAB=N takes another number of pieces, KATADATA=PROGRAM another katadata than the build's. Needs apt-get,
# Python 3 and about 1 GB in the folder for temporary files; installs nothing. Takes a few minutes.
set -euo pipefail
export LC_ALL=C.UTF-8

fail() {
  echo "make_lm_corpus.sh: error: $1" >&2
  exit "${2:-2}"
}

cd "$(dirname "$0")/.."
output=${1:-data/lm}
vocab=${KATA_VOCAB:-32000}
for tool in apt-get dpkg-deb python3; do
  command -v "$tool" >/dev/null || fail "the program $tool is missing; this script needs Debian 12 or Ubuntu 24.04"
done
katadata=${KATADATA:-}
if [ -z "$katadata" ]; then
  ./scripts/build.sh cpu katadata
  katadata=build/cpu/bin/katadata
fi
[ -x "$katadata" ] || fail "$katadata is not a program; build it with: ./scripts/build.sh cpu katadata"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debs" "$work/packages"

# Of names in one line, the first that the distribution has.
while read -r -a names; do
  found=""
  for name in "${names[@]}"; do
    (cd "$work/debs" && apt-get -q download "$name" >"$work/log" 2>&1) && found=$name && break
  done
  if [ -z "$found" ]; then
    echo "make_lm_corpus.sh: warning: ${names[0]} cannot be fetched: $(tail -n 1 "$work/log")" >&2
    continue
  fi
  deb=$(echo "$work/debs/$found"_*.deb)
  dpkg-deb -x "$deb" "$work/packages/$found"
  echo "$found $(dpkg-deb -f "$deb" Version) $(sha256sum "$deb" | cut -d " " -f 1)" >>"$work/names"
done <<'PACKAGES'
debian-handbook
debian-policy
debian-reference-en
developers-reference
dict-foldoc
dict-gcide
gimp-help-en
git-doc
installation-guide-amd64
jargon-text
manpages
manpages-dev
perl-doc
postgresql-doc-15 postgresql-doc-16
python3.11-doc python3.12-doc
rust-doc
wordnet-base
PACKAGES
[ -s "$work/names" ] || fail "no package could be fetched; check the network, or refresh the lists with: apt-get update"

# The Bible ships with this repository already.
mkdir "$work/packages/bible-kjv-text"
cp data/kjv.txt.gz "$work/packages/bible-kjv-text/"
echo "bible-kjv-text 4.38 $(sha256sum data/kjv.txt.gz | cut -d " " -f 1)" >>"$work/names"

python3 scripts/lm_text.py "$work/names" "$work/packages" "$work/text" "$work/SOURCES.md"
mkdir -p "$output"
"$katadata" train-tokenizer --input "$work/text" --vocab "$vocab" --output "$work/tokenizer.model"
"$katadata" tokenize --input "$work/text" --documents form-feed --tokenizer "$work/tokenizer.model" \
  --validation-fraction 0.01 --output "$output" --overwrite
cp "$work/tokenizer.model" "$work/SOURCES.md" "$output/"
tail -n 1 "$output/SOURCES.md"
