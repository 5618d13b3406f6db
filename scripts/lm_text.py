#!/usr/bin/env python3
"""Turns unpacked documentation packages into one file of English documents, for scripts/make_lm_corpus.sh.

    python3 scripts/lm_text.py PACKAGES FOLDER OUTPUT SOURCES

PACKAGES: lines of name, version, sha256 of the .deb. FOLDER/NAME holds what the package holds. OUTPUT gets
documents of UTF-8 paragraphs with a form feed between two, in the order of their SHA-256; SOURCES the table of
what is in it. The same packages give the same bytes.
"""
import gzip
import hashlib
import html.parser
import re
import sys
from pathlib import Path

SHORTEST_DOCUMENT = 400  # characters
LONGEST_DICTIONARY_PART = 12000


# ---- paragraphs ----

def reads_as_prose(text):
    letters = sum(c.isalpha() or c == " " for c in text)
    return letters >= 0.8 * len(text) and any(c.isalpha() for c in text)


def paragraph(text):
    """One line, or an empty string where it is no prose."""
    text = "".join(c if c.isprintable() else " " for c in text.replace("\u2581", "_"))
    text = re.sub(r" +", " ", text).strip()
    return text if reads_as_prose(text) else ""


def of_lines(lines):
    """Paragraphs out of lines: blank lines stand between two."""
    part = []
    for line in [*lines, ""]:
        if line.strip():
            part.append(line.strip())
        elif part:
            yield " ".join(part)
            part = []


def read(path):
    data = path.read_bytes()
    if path.suffix in (".gz", ".dz"):
        data = gzip.decompress(data)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


# ---- formats: each gives the documents of a file as lists of paragraphs ----

class HtmlText(html.parser.HTMLParser):
    SKIP = {"script", "style", "pre", "nav", "header", "footer", "table", "title", "head", "button", "svg"}
    BREAK = {"p", "div", "li", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6", "br", "section", "blockquote",
             "ul", "ol", "dl", "article", "main", "body"}

    def __init__(self):
        super().__init__()
        self.skipped, self.parts, self.found = [], [], []

    def cut(self):
        self.found.append("".join(self.parts).replace("\n", " "))
        self.parts = []

    def handle_starttag(self, tag, attributes):
        if tag in self.SKIP:
            self.cut()
            self.skipped.append(tag)
        elif tag in self.BREAK:
            self.cut()

    def handle_endtag(self, tag):
        if self.skipped and tag == self.skipped[-1]:
            self.skipped.pop()
        elif tag in self.BREAK:
            self.cut()

    def handle_data(self, data):
        if not self.skipped:
            self.parts.append(data)


def html_page(text):
    parser = HtmlText()
    parser.feed(text)
    parser.cut()
    yield parser.found


def plain(text):
    yield list(of_lines(text.splitlines()))


def bible(text):
    """A chapter is a heading and a paragraph; eight of them make a document."""
    parts = text.split("\n\n")
    for at in range(0, len(parts), 16):
        yield parts[at:at + 16]


def jargon(text):
    """A document for about twelve thousand characters of entries, whose heads stand at the left margin."""
    yield from grouped(of_lines(re.sub(r"[{}]", "", text).splitlines()))


def grouped(paragraphs):
    part, size = [], 0
    for text in paragraphs:
        part.append(text)
        size += len(text)
        if size > LONGEST_DICTIONARY_PART:
            yield part
            part, size = [], 0
    yield part


def gcide(text):
    def entries():
        text_without_marks = re.sub(r"\[(1913 Webster|PJC|WordNet[^\]]*|Webster[^\]]*|Century[^\]]*)[^\]]*\]", "", text)
        for part in of_lines(text_without_marks.splitlines()):
            part = re.sub(r"\[[^\]]{0,300}\]", "", part)     # etymology, inflection
            part = re.sub(r"\\[^\\]{0,60}\\", "", part)      # the pronunciation
            yield re.sub(r"\s+([,.;])", r"\1", re.sub(r"[{}|]", "", part))
    yield from grouped(entries())


def foldoc(text):
    yield from grouped(re.sub(r"[{}]|<[\w, ]+>|\(\d{4}-\d\d-\d\d\)", "", part)
                       for part in of_lines(text.splitlines()))


def wordnet(text):
    """Lines `offset file kind n word id ... | gloss`; a word and what it means."""
    def entries():
        for line in text.splitlines():
            if line.startswith(" ") or " | " not in line:
                continue
            head, gloss = line.split(" | ", 1)
            fields = head.split()
            words = [fields[4 + 2 * i].replace("_", " ") for i in range(int(fields[3], 16))]
            yield f"{', '.join(re.sub(r'[(].*[)]', '', word) for word in words)}: {gloss.strip()}"
    yield from grouped(entries())


def pod(text):
    found = []
    for part in text.split("\n\n"):
        if part.startswith("="):
            command, _, rest = part.partition(" ")
            if not command.startswith(("=head", "=item")):
                continue
            part = rest
        elif part[:1] in " \t":
            continue  # code
        for _ in range(3):
            part = re.sub(r"[BICFSL]<(?:[^<>|]*\|)?([^<>]*)>", r"\1", part)
        part = re.sub(r"[BICFSLXZ]<<+ | >>+", "", re.sub(r"[XZ]<[^<>]*>", "", part))
        found.append(re.sub(r"E<(lt|gt)>", lambda m: {"lt": "<", "gt": ">"}[m[1]], part).replace("\n", " "))
    yield found


def rst(text):
    found = []
    for part in re.split(r"\n\s*\n", text):
        first = part.lstrip("\n")
        if first.startswith((".. ", ">>> ", "+-", "==", "|")) or re.match(r" {3,}(>>>|\.\.|:\w+:|[\w.]+\()", first):
            continue
        lines = [line.strip() for line in part.splitlines()]
        lines = [line for line in lines if not re.fullmatch(r"(\W)\1{2,}", line) and not line.startswith((":", ".. "))]
        part = " ".join(lines)
        part = re.sub(r":[\w:+-]+:`[~!]?([^`<]*?)(?: ?<[^`>]*>)?`", r"\1", part)
        part = re.sub(r"`([^`<]*?)(?: ?<[^`>]*>)?`_*", r"\1", part.replace("``", ""))
        found.append(re.sub(r"\*\*?([^*]+)\*\*?", r"\1", part).replace("::", ":"))
    yield found


def roff(text):
    """The usual macros of manual pages; what stands between .nf and .fi, or .EX and .EE, is code."""
    found, part, code = [], [], False
    if "\n.SH NAME" not in text:
        return

    def inline(line):
        line = re.sub(r"\\f(\[\w*\]|\(..|.)|\\[&/,:%|^]|\\s[-+]?\d", "", line)
        line = re.sub(r"\\\(([lr]q|aq|em|en|bu|co)", lambda m: {"lq": '"', "rq": '"', "aq": "'", "em": "-", "en": "-",
                                                                  "bu": "", "co": "(c)"}[m[1]], line)
        line = re.sub(r"\\\[[^\]]*\]|\\\*\(..|\\\*.", "", line)
        return line.replace("\\-", "-").replace("\\ ", " ").replace("\\e", "\\").replace("\\(", "")

    def flush():
        found.append(" ".join(part))
        part.clear()

    for line in text.splitlines():
        macro = re.match(r"[.'](\w*)\s*(.*)", line)
        if not macro:
            if not code:
                part.append(inline(line))
            continue
        name, words = macro[1], inline(macro[2])
        if name in ("nf", "EX", "TS"):
            flush()
            code = True
        elif name in ("fi", "EE", "TE"):
            code = False
        elif code or name == "":
            continue
        elif name in ("SH", "SS"):
            flush()
            found.append(words.strip('"').capitalize())
        elif name in ("PP", "P", "LP", "TP", "IP", "HP", "RS", "RE", "sp", "br", "TQ"):
            flush()
        elif name in ("B", "I", "SM", "SB"):
            part.append(words.replace('"', ""))
        elif name in ("BR", "IR", "RB", "RI", "BI", "IB"):
            part.append("".join(a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', words)))
    flush()
    yield found


# ---- what is taken of each package ----

# package: licence as its copyright file gives it, format, patterns below the package's folder
TAKEN = {
    "bible-kjv-text": ("public domain", bible, ["kjv.txt.gz"]),
    "dict-gcide": ("GPL-2+; the text of 1913 is in the public domain", gcide, ["usr/share/dictd/gcide.dict.dz"]),
    "wordnet-base": ("WordNet 3.0 licence", wordnet, ["usr/share/wordnet/data.*"]),
    "dict-foldoc": ("GFDL-1.1+ without invariant sections", foldoc, ["usr/share/dictd/foldoc.dict.dz"]),
    "jargon-text": ("public domain", jargon, ["usr/share/doc/jargon-text/jargon.txt.gz"]),
    "debian-handbook": ("GPL-2+ or CC-BY-SA-3.0", html_page, ["usr/share/doc/debian-handbook/html/en-US/*.html"]),
    "debian-policy": ("GPL-2+", plain, ["usr/share/doc/debian-policy/*.txt.gz"]),
    "debian-reference-en": ("GPL-2+", html_page, ["usr/share/debian-reference/*.en.html"]),
    "developers-reference": ("GPL-2", html_page, ["usr/share/developers-reference/*.html"]),
    "installation-guide-amd64": ("GPL-2", html_page, ["usr/share/doc/installation-guide-amd64/en/*.html"]),
    "gimp-help-en": ("GFDL-1.2+ without invariant sections", html_page, ["usr/share/gimp/2.0/help/en/*.html"]),
    "perl-doc": ("GPL-1+ or Artistic", pod, ["usr/share/perl/*/pod/*.pod", "usr/share/perl/*/**/*.pod"]),
    "python3-doc": ("PSF-2", rst, ["usr/share/doc/python3*/html/_sources/**/*.rst.txt"]),
    "postgresql-doc": ("PostgreSQL", html_page, ["usr/share/doc/postgresql-doc-*/html/*.html"]),
    "git-doc": ("GPL-2", html_page, ["usr/share/doc/git/html/*.html", "usr/share/doc/git/html/howto/*.html",
                                       "usr/share/doc/git-doc/*.html", "usr/share/doc/git-doc/howto/*.html"]),
    "rust-doc": ("MIT or Apache-2.0", html_page, ["usr/share/doc/rust-doc/html/book/*.html",
                                                   "usr/share/doc/rust-doc/html/reference/**/*.html",
                                                   "usr/share/doc/rust-doc/html/nomicon/*.html"]),
    "manpages": ("GPL-2+, BSD, Linux-man-pages-copyleft", roff, ["usr/share/man/man?/*.gz"]),
    "manpages-dev": ("GPL-2+, BSD, Linux-man-pages-copyleft", roff, ["usr/share/man/man?/*.gz"]),
}


def kind_of(package):
    """The row of TAKEN: python3.11-doc is python3-doc, postgresql-doc-15 is postgresql-doc."""
    return re.sub(r"^(python3)\.\d+|-\d[\d.]*$", r"\1", package)


def documents(folder, package, seen):
    _, form, patterns = TAKEN[kind_of(package)]
    files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    for path in files:
        for parts in form(read(path)):
            kept = []
            for text in filter(None, map(paragraph, parts)):
                key = hashlib.sha256(text.encode()).digest()[:12]
                if len(text) < 60 or key not in seen:  # licences, notes and navigation come once
                    kept.append(text)
                seen.add(key)
            text = "\n\n".join(kept) + "\n"
            if len(text) >= SHORTEST_DOCUMENT:
                yield text


def main():
    packages, folder, output, sources = sys.argv[1:]
    rows, corpus, seen = [], {}, set()
    for line in Path(packages).read_text().splitlines():
        name, version, digest = line.split()
        before = len(corpus)
        for text in documents(Path(folder) / name, name, seen):
            corpus[hashlib.sha256(text.encode()).hexdigest()] = text
        size = sum(len(text.encode()) for text in list(corpus.values())[before:])
        if size == 0:
            print(f"make_lm_corpus.sh: warning: {name} {version}: no text found in it", file=sys.stderr)
            continue
        rows.append(f"| {name} | {version} | {TAKEN[kind_of(name)][0]} | {len(corpus) - before} | {size} | `{digest}` |")
    text = "\f".join(corpus[key] for key in sorted(corpus)).encode()
    Path(output).write_bytes(text)
    Path(sources).write_text(
        "# Sources of the text\n\nMade by `scripts/make_lm_corpus.sh` out of the distribution's packages. The whole text of each licence\n"
        "stands in the package (`/usr/share/doc/NAME/copyright`).\n\n"
        "| package | version | licence | documents | bytes | sha256 of the package |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows) + f"\n\nAll: {len(corpus)} documents, {len(text)} bytes, sha256 `{hashlib.sha256(text).hexdigest()}`.\n")


if __name__ == "__main__":
    main()
