#!/bin/sh
# Makes data/kjv.txt.gz from the Debian packages bible-kjv and bible-kjv-text (4.38 on Debian 12): the King James
# Version as prose, one paragraph per chapter under its heading, without verse numbers.
#
#   ./scripts/make_corpus.sh [OUTPUT]      default: data/kjv.txt.gz
#
# The text's checksum is compared with the one below, so the same file comes out or the script says that the package
# holds another text.
set -eu
export LC_ALL=C

root=$(cd "$(dirname "$0")/.." && pwd)
output=${1:-$root/data/kjv.txt.gz}
expected=2e539e5209dc7271620d51680424bcd4b64705cf5f5d542cf0a34251bc1c62ce

if ! command -v bible >/dev/null; then
  echo "make_corpus.sh: error: the program bible is missing; install it with: apt-get install bible-kjv" >&2
  exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# `bible` prints a heading ("Genesis 1") between blank lines, then a line per verse: two blanks, the number, the text.
bible -p /usr/lib -l 100000 gen1:1-rev22:21 >"$work/verses.txt" </dev/null
awk '
  /^  [0-9]+ / {
    sub(/^  [0-9]+ /, "")
    gsub(/  +/, " ")
    sub(/ $/, "")
    paragraph = paragraph (paragraph == "" ? "" : " ") $0
    next
  }
  /^$/ { next }
  {
    if (paragraph != "") printf "%s\n\n", paragraph
    paragraph = ""
    printf "%s\n\n", $0
  }
  END { print paragraph }
' "$work/verses.txt" >"$work/kjv.txt"

found=$(sha256sum "$work/kjv.txt" | cut -d " " -f 1)
if [ "$found" != "$expected" ]; then
  echo "make_corpus.sh: error: the text has the sha256 $found, expected $expected; is it another version of bible-kjv-text?" >&2
  exit 3
fi
gzip -9nc "$work/kjv.txt" >"$output.tmp"
mv "$output.tmp" "$output"
echo "$output: $(wc -c <"$work/kjv.txt") bytes of text, $(wc -c <"$output") compressed"
