#!/usr/bin/env python3
"""The demo model's perplexity on its whole held-out text, against its card.

  tests/perplexity.py WASTE

WASTE is the built command line. Some minutes. Converts the demo model without loss and by default and holds the
first to 0.1 % of the card's figure, the second to 2 %.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

DEMO = pathlib.Path(__file__).resolve().parent / "data" / "demo-model"
# Arguments of convert, arguments of eval, largest relative difference from the card.
CASES = [(["--trunk", "bf16"], ["--compute", "f32"], 0.001), ([], [], 0.02)]


def main():
    waste = sys.argv[1]
    expected = json.loads((DEMO / "expected.json").read_text())["heldout"]["perplexity"]
    failed = False
    for number, (convert, evaluate, limit) in enumerate(CASES):
        with tempfile.TemporaryDirectory() as folder:
            container = f"{folder}/{number}.waste"
            subprocess.run([waste, "convert", str(DEMO), container, "-q", *convert], check=True)
            command = [waste, "eval", container, "--perplexity", str(DEMO / "heldout.txt"), "--json", "-q", *evaluate]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        off = result["perplexity"] / expected - 1
        good = abs(off) < limit and result["scored_tokens"] == 128261
        failed |= not good
        print(f"{' '.join(convert + evaluate) or 'defaults'}: {result['perplexity']:.4f}, the card {expected:.4f}, "
              f"{100 * off:+.3f} % (limit {100 * limit:.1f} %): {'good' if good else 'WRONG'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
