#!/usr/bin/env python3
"""Prompts of thousands of tokens: their memory is the plan's, their time grows with their length and not faster, one
sees them proceed, and Ctrl-C ends them.

    test_long_prompts.py BINARY SOURCE_DIR [TEST…]
"""
import json
import os
import pty
import re
import resource
import select
import signal
import time

import command_support
from command_support import MIB, CommandTest, digests


def few_layers(config):
    """A small model whose matrices, not its attention, are what a token spends its time in."""
    text = config["text_config"]
    text["num_hidden_layers"] = 4
    text["linear_attn_config"].update(kda_layers=[1, 2, 3], full_attn_layers=[4], num_heads=4)
    text.update(hidden_size=512, vocab_size=2048, num_attention_heads=2, moe_intermediate_size=128,
                intermediate_size=512, routed_expert_hidden_size=256, max_position_embeddings=1 << 16)
    config["eos_token_id"] = []
    config["pad_token_id"] = None


class LongPromptTest(CommandTest):
    def setUp(self):
        super().setUp()
        with open(os.path.join(self.model("tiny-k3"), "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        few_layers(config)
        shape = self.path("config.json")
        with open(shape, "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.container = self.path("small.waste")
        self.succeed("synth", "-q", shape, self.container)

    def ids(self, count):
        path = self.path(f"{count}.ids")
        with open(path, "w", encoding="ascii") as file:
            file.write(",".join(str((7 + 61 * i) % 2048) for i in range(count)))
        return path

    # Memory: what is anonymous; mapped files come and go by themselves.

    def session_bytes(self, context, block, threads=2):
        """What the plan calls a session's own."""
        out, _ = self.succeed("plan", self.container, "--ctx", str(context), "--block", str(block), "--threads",
                              str(threads), "--json")
        plan = json.loads(out)["plans"][0]
        return sum(plan[key] for key in ("kda_state_bytes", "conv_ring_bytes", "mla_latent_bytes", "activation_bytes"))

    def peak_bytes(self, count, context, block, threads=2):
        """Most anonymous memory that a run is seen with; nothing is given back before its end."""
        process = self.start("run", self.container, "--ids", self.ids(count), "-n", "1", "--temp", "0", "-q", "--ctx",
                             str(context), "--block", str(block), "--threads", str(threads))
        peak = 0
        while process.poll() is None:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
                found = re.search(r"RssAnon:\s+(\d+) kB", file.read())
            peak = max(peak, int(found.group(1)) * 1024 if found else 0)
            time.sleep(0.002)
        out, error = process.communicate()
        self.assertEqual(process.returncode, 0, error)
        return peak

    def test_the_plan_is_the_peak(self):
        # The program itself, and the ends of two blocks that lie in huge pages.
        program = self.peak_bytes(1, 2, 64) + 2 * 2 * MIB
        self.assertLess(program, 16 * MIB)
        for block in (512, 4096):
            planned = self.session_bytes(3001, block)
            self.assertGreater(planned, 12 * MIB, "too little to tell anything")
            peak = self.peak_bytes(3000, 3001, block)
            print(f"blocks of {block}: planned {planned / MIB:.1f} MiB, seen {peak / MIB:.1f} MiB", flush=True)
            self.assertLess(peak, planned + program)
            self.assertGreater(peak, planned / 4, "the plan has nothing to do with it")

    # Time: that of the processor, which other programs do not lengthen.

    def seconds(self, count):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        self.succeed("run", self.container, "--ids", self.ids(count), "-n", "1", "--temp", "0", "-q", "--threads", "1",
                     timeout=600)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    def test_time_grows_with_the_length(self):
        short, long = self.seconds(1024), self.seconds(8192)
        print(f"1024 tokens: {short:.2f} s, 8192: {long:.2f} s", flush=True)
        self.assertLess(long / 8, 3 * short)

    # What is seen of it.

    def test_progress_on_a_pipe_is_lines(self):
        _, error = self.succeed("run", self.container, "--ids", self.ids(600), "-n", "1", "--temp", "0")
        self.assertRegex(error, r"(?m)^100\.0 %  600 tokens of 600 tokens  \d+ tokens/s  reading the prompt$")
        self.assertNotIn("\r", error)
        for options in (("--ids", self.ids(600), "-q"), ("--ids", self.ids(100))):
            _, error = self.succeed("run", self.container, "-n", "1", "--temp", "0", *options)
            self.assertNotIn("reading the prompt", error)

    def on_a_terminal(self, arguments, until, then):
        """Runs with stderr on a terminal; calls then(process) when `until` is seen there. (code, stdout, shown)"""
        ours, theirs = pty.openpty()
        process = self.start(*arguments, stderr=theirs)
        os.close(theirs)
        shown = b""
        deadline = time.monotonic() + 120
        while True:
            self.assertLess(time.monotonic(), deadline, shown)
            if not select.select([ours], [], [], 1)[0]:
                continue
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other side is closed
                part = b""
            if not part:
                break
            shown += part
            if then and until in shown:
                then(process)
                then = None
        os.close(ours)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out.decode(), shown.decode()

    def test_progress_on_a_terminal(self):
        code, out, shown = self.on_a_terminal(
            ("run", self.container, "--ids", self.ids(600), "-n", "1", "--temp", "0"), b"", None)
        self.assertEqual(code, 0, shown)
        self.assertRegex(out, r"^\d+\n?$")
        self.assertIn("\r100.0 %  600 tokens of 600 tokens", shown)

    def test_interrupted_while_it_reads(self):
        before = digests(self.container)
        usual = ("run", self.container, "--temp", "0", "--block", "64", "--threads", "1")
        prompt = self.ids(40000)
        for number in (signal.SIGINT, signal.SIGTERM):
            code, out, shown = self.on_a_terminal((*usual, "--ids", prompt, "-n", "1"), b"reading the prompt",
                                                  lambda process, number=number: process.send_signal(number))
            self.assertEqual(code, 130, shown)
            self.assertEqual(out.strip(), "")
            lines = [line for line in shown.splitlines() if "ended by interrupted" in line]
            self.assertEqual(len(lines), 1, shown)
            # It ends behind a whole block, long before the end.
            tokens = int(re.search(r"prompt (\d+) tokens", lines[0]).group(1))
            self.assertEqual(tokens % 64, 0)
            self.assertLess(tokens, 40000)
            # No more than the block being computed when the signal came.
            last_seen = [int(n) for n in re.findall(r"(\d+) tokens of 40000", shown)][-1]
            self.assertGreaterEqual(tokens, last_seen)
        self.assertEqual(digests(self.container), before)
        self.succeed(*usual, "--ids", self.ids(100), "-n", "2")


if __name__ == "__main__":
    command_support.main(__name__)
