#!/usr/bin/env python3
"""Makes tests/data/fixtures/*.json: small tokenizers of each kind, and what the tokenizers library makes of texts.

    python3 -m venv VENV && VENV/bin/pip install tokenizers
    VENV/bin/python scripts/make_tokenizer_fixtures.py
    VENV/bin/python scripts/make_tokenizer_fixtures.py --random 10000 --output FOLDER
    KATA_TOKENIZER_FIXTURES=FOLDER build/cpu/bin/test_data --gtest_filter='HfTokenizer.GivesTheIds*'

The first call trains on data/kjv.txt.gz and writes, for each kind, KIND.json (a tokenizer.json) and KIND_ids.json
([{"text", "ids", "special", "decoded"}, ...], without what is equal to what stands before). The second one takes the
tokenizers that are there and writes so many random texts of all scripts per kind, which the test then reads instead.
"""

import argparse
import gzip
import json
import random
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests/data/fixtures"

LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")

# ---- the kinds ----


def corpus():
    text = gzip.open(ROOT / "data/kjv.txt.gz", "rt").read()
    lines = text.split("\n")[:4000]
    return lines + ["caf\u00e9 na\u00efve \u4e2d\u6587 \u65e5\u672c\u8a9e 12 345 6789 don't we'll I've  two   three"] * 50


def train(tokenizer, vocab, specials, alphabet, **more):
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=specials, initial_alphabet=alphabet,
                                  show_progress=False, **more)
    tokenizer.train_from_iterator(corpus(), trainer)


def bytes_model():
    return Tokenizer(models.BPE())


def gpt2():
    t = bytes_model()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    train(t, 1200, [], pre_tokenizers.ByteLevel.alphabet())
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens(["<|endoftext|>"])
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    train(t, 1500, [], pre_tokenizers.ByteLevel.alphabet())
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    bos = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", bos)])])
    return t


def qwen():
    t = bytes_model()
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    train(t, 1000, [], pre_tokenizers.ByteLevel.alphabet())
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("  ", normalized=True)])
    return t


LLAMA_SPECIALS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def blanks_model(vocab, byte_fallback=True):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    train(t, vocab, LLAMA_SPECIALS + (BYTES if byte_fallback else []), [])
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def llama2():
    t = blanks_model(1100)
    t.pre_tokenizer = None
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A <s>:1 $B:1",
                                                     special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def llama2_first():
    t = blanks_model(900, byte_fallback=False)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.add_tokens([AddedToken("<b>", rstrip=True, normalized=False), AddedToken("word", single_word=True, normalized=False)])
    return t


def digits():
    t = bytes_model()
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                         normalizers.Strip(), normalizers.Replace(Regex(r"\s{3,}"), " ~ ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("contiguous"),
        pre_tokenizers.Split("e", "merged_with_previous"),
        pre_tokenizers.Split(Regex("[aio]"), "merged_with_next"),
        pre_tokenizers.ByteLevel(add_prefix_space=True)])
    train(t, 700, [], pre_tokenizers.ByteLevel.alphabet())
    t.decoder = decoders.ByteLevel()
    t.add_tokens([AddedToken("HELLO", normalized=True), AddedToken("World", normalized=True, single_word=True)])
    return t


def spaces():
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.NFD()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Split(Regex(r"\p{Lu}+"), "isolated", invert=True),
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("[xyz]"), "removed"),
        pre_tokenizers.Digits(individual_digits=False)])
    train(t, 600, ["<unk>"], [], end_of_word_suffix="</w>", limit_alphabet=80)
    t.add_special_tokens(["[SEP]"])
    return t


KINDS = [gpt2, llama3, qwen, llama2, llama2_first, digits, spaces]

# ---- texts ----

SPECIALS = ["<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<mask>", "<b>",
            "<tool>", "[SEP]", "word", "HELLO", "World", "<0x41>", "\u2581"]
PARTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u2003\u2003", "\u3000", "\u0085", "\u200b",
    "Hello world", " leading", "trailing ", "In the beginning God created the heaven and the earth.",
    "don't we'll I'VE it'S 'tis rock'n'roll y'all'd've", "DON'T \u2019s 's's ''d", "'\u017f x'\u017f",
    "3.14159 1,000,000 1234567 12 345", "\u0661\u0662\u0663 \u2460\u2461 \u00bd \u2167 \u0967\u0968 \u4e09",
    "caf\u00e9 cafe\u0301 na\u00efve A\u030a \u212b \u1e69 s\u0323\u0307 s\u0307\u0323", "\u0301 lone mark", "a\u0301\u0301\u0301b",
    "\u0130stanbul \u0131 \u1e9e \u00df \u03a3\u0391\u03a3 \u03c2", "\ufb01 \ufb03 \uff21\uff22\uff23 \u2126 \u00b5 \u2122",
    "\u4e2d\u6587\u5206\u8bcd \u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea \u0e44\u0e17\u0e22 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f642 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \U0001f44d\U0001f3fd",
    "\U00010348 \U0001d400 \U0010fffd \ue000 \ufffd \ufeff", "\x00\x01\x7f \x1b[0m", "a\u200db \u200c",
    "{\"key\": [1, 2.5, null]}", "if (x <= y) { return -1; } // ok", "http://example.org/a?b=c&d=%20#e",
    "_under_score__ a-b--c ---- !!! ?!?! ...", "xyzzy XYZ aXbYc eee aio", "\t\tindented\n\t\tcode\n\n\n    four",
    "word words sword word. (word)", "HELLO hello World world Worlds", "a" * 200, " " * 100, "\n" * 70 + "x", "ab" * 150,
    "the " * 60, "\u2581\u2581a \u2581b", "<|endoftext|", "<|endoftext|><|endoftext|>", " <s> a </s>b", "<s><s>  <s>",
    "x <mask> y", "x  \n<mask>  y<b>  \t z", "<b> <b>", "<b>  <mask>", "no<|im_start|>user\nhi<|im_end|>\n", "<tool>  <tool>",
]


def fixed_texts():
    rng = random.Random(1)
    texts = list(PARTS) + SPECIALS + [f" {s} " for s in SPECIALS] + [f"a{s}b" for s in SPECIALS]
    for _ in range(120):
        texts.append("".join(rng.choice(PARTS + SPECIALS + [" "]) for _ in range(rng.randint(2, 4))))
    return [t for t in dict.fromkeys(texts) if len(t) < 400]


SCRIPTS = [(0x20, 0x7f), (0xa0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x600), (0x600, 0x700),
           (0x900, 0xa80), (0xe00, 0xe80), (0x1100, 0x1200), (0x1e00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2460),
           (0x2460, 0x2800), (0x3000, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a4), (0xf900, 0xfb50), (0xfe00, 0x10000),
           (0x10300, 0x10400), (0x1d400, 0x1d800), (0x1f300, 0x1fa00), (0x20000, 0x20100), (0x0, 0x20), (0x20, 0x7f)]


def is_fair(c):
    """Not a character of which the library, whose tables of marks, punctuation and normal forms are old, knows less."""
    category = unicodedata.category(c)
    if category in ("Cn", "Cs"):
        return False
    old = unicodedata.ucd_3_2_0.category(c) != "Cn"
    return old or not (category[0] in "MP" or unicodedata.combining(c) or unicodedata.decomposition(c))


def random_text(rng):
    def character(script):
        while True:
            c = chr(rng.randrange(*script))
            if is_fair(c):
                return c
    text = ""
    for _ in range(rng.randint(1, 6)):
        kind = rng.random()
        if kind < 0.2:
            text += rng.choice(SPECIALS)
        elif kind < 0.4:
            text += rng.choice(PARTS)[:30]
        elif kind < 0.55:
            text += "".join(rng.choice(" \n\t\r\u00a0\u2003") for _ in range(rng.randint(1, 5)))
        else:
            script = rng.choice(SCRIPTS)
            text += "".join(character(script) for _ in range(rng.randint(1, 12)))
    return text


# ---- fixtures ----


def expected(tokenizer, text):
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    special = tokenizer.encode(text, add_special_tokens=True).ids
    decoded = tokenizer.decode(plain)
    found = {"text": text, "ids": plain}
    if special != plain:
        found["special"] = special
    if decoded != text:
        found["decoded"] = decoded
    return found


def write(folder, name, tokenizer, texts):
    content = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False) + "\n"
    (folder / f"{name}.json").write_text(content)
    lines = [json.dumps(expected(tokenizer, text), separators=(",", ":")) for text in texts]
    (folder / f"{name}_ids.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{name}: {tokenizer.get_vocab_size()} pieces, {len(texts)} texts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=0, help="texts per kind, of the fixtures' tokenizers")
    parser.add_argument("--output", type=Path, default=FIXTURES)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        name = kind.__name__
        if arguments.random == 0:
            write(arguments.output, name, kind(), fixed_texts())
        else:
            rng = random.Random(arguments.seed)
            texts = [random_text(rng) for _ in range(arguments.random)]
            write(arguments.output, name, Tokenizer.from_file(str(FIXTURES / f"{name}.json")), texts)


if __name__ == "__main__":
    main()
