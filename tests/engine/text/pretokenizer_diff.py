#!/usr/bin/env python3
"""Compares our pieces and ids with an independent engine: Python's third-party `regex` module, run on the release's
pattern as it is written there, and the cut and merge rules in plain Python.

  pretokenizer_diff.py PRETOKENIZE_LINES DEMO_MODEL_DIR [number of random texts, default 20000] [seed, default 1]

Ends with 77 (skipped) where the module is missing. Engines know different versions of Unicode, so the alphabet has
only characters whose class is the same in all of them (U+0295, a small letter until Unicode 15 and no longer in 16, is
left out).
"""
import base64
import os
import random
import struct
import subprocess
import sys

try:
    import regex
except ImportError:
    print("skipped: the Python module `regex` is missing")
    sys.exit(77)

UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = regex.compile("|".join([
    r"[\p{Han}]+",
    BEFORE + UPPER + "*" + LOWER + "+" + CONTRACTION,
    BEFORE + UPPER + "+" + LOWER + "*" + CONTRACTION,
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"\s*[\r\n]+",
    r"\s+(?!\S)",
    r"\s+"]), regex.V1)

# Each line is drawn with equal chance, then a unit of it: letters of each case, Han and its neighbours, kana, marks,
# numbers, white space of every kind, what looks like white space, contractions, punctuation, emoji.
ALPHABET = [
    list("abzßéıſ"), list("ABZÉİ"), list("ǅǈ"), list("ʰˠﾞ"), list("אبกꡀ"), list("\u0301\u0940\u20DD\u3099\uFE0F"),
    list("中文汉字龘〇々〻\U00020000"), list("、。〆ー・「」"), list("のテキスト"), list("0179"), list("３½²Ⅷ٣৪"),
    [" ", "  ", "   "], ["\n", "\r", "\r\n", "\n\n"], list("\t\v\f\u0085\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"),
    list("\u180e\u200b\u200d\ufeff\u001c\u001f\x00\x7f"),
    ["'s", "'S", "'ſ", "'t", "'re", "'RE", "'Ve", "'m", "'ll", "'LL", "'d", "'", "’s"],
    list(".,!?-_/\\(){}<>|\"'“”—…"), list("$+=€√"), ["🎉", "👩‍💻", "🇯🇵"],
    ["///", "/**", "<|open|>", "<|end_of_msg|>", "[EOS]"],
]
CHUNK_CHARACTERS, RUN_CHARACTERS = 400_000, 25_000


def cut(text):
    for begin in range(0, len(text), CHUNK_CHARACTERS):
        chunk = text[begin:begin + CHUNK_CHARACTERS]
        start, run = 0, 0
        for i, character in enumerate(chunk):
            run = run + 1 if i and character.isspace() == chunk[i - 1].isspace() else 1
            if run > RUN_CHARACTERS:
                yield chunk[start:i]
                start, run = i, 1
        yield chunk[start:]


def pieces_of(text):
    return [piece for part in cut(text) for piece in PATTERN.findall(part)]


def random_text(rng):
    return "".join(rng.choice(rng.choice(ALPHABET)) for _ in range(rng.randint(1, 40)))


def long_texts(rng):
    """Texts that the cut rule cuts: runs of one kind, separators it takes for white space, whole chunks."""
    words = "".join(random_text(rng) for _ in range(25_000))
    assert len(words) > CHUNK_CHARACTERS
    yield words
    for unit in ["a", " ", "\n", "中", "\x1c", "é̂", "A", "1", "."]:
        yield "x " + unit * 60_000 + " y"
    yield "b " * 190_000 + "a" * 50_000
    yield "a" * 20_000 + "\x1c" + "a" * 20_000
    yield "a" * 20_000 + "\u180e" + "a" * 20_000


def run_ours(driver, arguments, texts):
    records = b"".join(struct.pack("<I", len(data)) + data for data in (text.encode() for text in texts))
    out = subprocess.run([driver, *arguments], input=records, stdout=subprocess.PIPE, check=True).stdout
    lines = out.decode().split("\n")[:-1]
    assert len(lines) == len(texts), "the driver answered %d of %d texts" % (len(lines), len(texts))
    return [[int(word) for word in line.split()] for line in lines]


def load_ranks(path):
    with open(path, "rb") as file:
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file if line.strip())}


def merge(ranks, piece, memo):
    if piece in ranks:
        return [ranks[piece]]
    if piece not in memo:
        parts = [piece[i:i + 1] for i in range(len(piece))]
        while len(parts) > 1:
            rank, at = min((ranks.get(parts[i] + parts[i + 1], len(ranks)), i) for i in range(len(parts) - 1))
            if rank == len(ranks):
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        memo[piece] = [ranks[part] for part in parts]
    return memo[piece]


def compare(what, texts, ours, theirs):
    wrong = [(text, a, b) for text, a, b in zip(texts, ours, theirs) if a != b]
    print("%s: %d texts, %d differ" % (what, len(texts), len(wrong)))
    for text, a, b in wrong[:5]:
        print("  text   %r\n  ours   %r\n  theirs %r" % (text[:200], a[:50], b[:50]))
    return not wrong


def main():
    driver, model = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20_000
    rng = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)

    texts = [random_text(rng) for _ in range(count)] + list(long_texts(rng))
    ours = run_ours(driver, ["pieces"], texts)
    theirs = [[len(piece.encode()) for piece in pieces_of(text)] for text in texts]
    same = compare("pieces", texts, ours, theirs)

    with open(os.path.join(model, "heldout.txt"), encoding="utf-8", newline="") as file:
        texts = [file.read()] + texts[:2000]
    ranks, memo = load_ranks(os.path.join(model, "tiktoken.model")), {}
    files = [os.path.join(model, name) for name in ("tiktoken.model", "tokenizer_config.json")]
    ours = run_ours(driver, ["ids", *files, str(len(ranks) + 256)], texts)
    theirs = [[i for piece in pieces_of(text) for i in merge(ranks, piece.encode(), memo)] for text in texts]
    same &= compare("ids", texts, ours, theirs)
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
