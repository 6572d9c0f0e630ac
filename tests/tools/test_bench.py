#!/usr/bin/env python3
"""`waste bench` and `--profile` as a user meets them. What they measure is never judged here, only that it adds up.

    test_bench.py BINARY SOURCE_DIR [TEST…]
"""
import json

import command_support
from command_support import CommandTest

COMPONENTS = {"residual", "kda_projections", "kda_heads", "mla_projections", "mla_attention", "router", "experts",
              "mlp", "head"}


class BenchTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.container = self.path("tiny.waste")
        self.convert(self.model("tiny-k3"), self.container)

    def bench(self, *options):
        out, error = self.succeed("bench", self.container, "--json", "-q", *options)
        self.assertEqual(error, "")
        return json.loads(out)

    def test_json_has_its_fields(self):
        result = self.bench("--prompt", "70,20", "--decode", "3", "--repeat", "2", "--threads", "2")
        self.assertEqual(result["model"], self.container)
        self.assertEqual(result["threads"], 2)
        self.assertEqual(result["compute"], "int8")
        self.assertEqual(result["block"], 512)
        self.assertIsInstance(result["tier"], str)
        self.assertGreater(result["memory_bytes_per_second"], 0)
        self.assertGreater(result["prompt_multiply_adds_per_token"], 0)
        self.assertRegex(result["logits_hash"], "^[0-9a-f]{16}$")
        self.assertEqual([(row["position"], row["tokens"], len(row["seconds"])) for row in result["prompts"]],
                         [(0, 70, 2), (0, 20, 2)])
        decode = result["decode"]
        self.assertEqual((decode["position"], decode["tokens"], len(decode["seconds"])), (20, 1, 3))
        self.assertGreater(decode["bytes_per_token"], 0)
        self.assertGreater(decode["share_of_memory_rate"], 0)
        for row in [*result["prompts"], decode]:
            self.assertGreater(row["tokens_per_second"], 0)
            self.assertNotIn("profile_ms_per_token", row)

    def test_without_decoding(self):
        self.assertNotIn("decode", self.bench("--prompt", "5", "--decode", "0", "--repeat", "1"))

    def test_profile_adds_up(self):
        result = self.bench("--prompt", "512", "--decode", "8", "--repeat", "1", "--threads", "1", "--profile")
        for row in [*result["prompts"], result["decode"]]:
            profile = row["profile_ms_per_token"]
            total = 1e3 * sum(row["seconds"]) / len(row["seconds"]) / row["tokens"]
            self.assertLessEqual(set(profile), COMPONENTS)
            self.assertGreater(len(profile), 5)
            self.assertLess(abs(sum(profile.values()) - total), 0.2 * total, row)

    def test_text_says_the_same(self):
        out, _ = self.succeed("bench", self.container, "-q", "--prompt", "70", "--decode", "2", "--repeat", "1",
                              "--profile")
        wanted = self.bench("--prompt", "70", "--decode", "2", "--repeat", "1")
        for words in ("prompt of 70", "token after 70", "multiply-adds/s", "of the memory rate", "ms/token",
                      "logits " + wanted["logits_hash"]):
            self.assertIn(words, out)

    def test_the_work_is_the_same_each_time(self):
        def work(*options, prompt="300", decode="3", repeat="1"):
            return self.bench("--prompt", prompt, "--decode", decode, "--repeat", repeat, *options)["logits_hash"]

        wanted = work()
        self.assertEqual(work(), wanted)
        self.assertEqual(work(repeat="2"), wanted)
        for options in (("--threads", "1"), ("--threads", "2"), ("--block", "64"), ("--block", "512")):
            self.assertEqual(work(*options), wanted, options)
        self.assertNotEqual(work(decode="2"), wanted)
        self.assertNotEqual(work(prompt="299"), wanted)

    def test_wrong_usage(self):
        for options, word in ((("--prompt", "0"), "--prompt"), (("--prompt", "x"), "--prompt"),
                              (("--prompt", ""), "--prompt"), (("--decode", "-1"), "--decode"),
                              (("--repeat", "0"), "--repeat"), (("--threads", "0"), "--threads"),
                              (("--compute", "f16"), "--compute"), (("--tier", "sse9"), "sse9"),
                              (("--block", "0"), "--block"), (("--block", "8192"), "--block"),
                              (("--frobnicate",), "--frobnicate")):
            self.refuse(("bench", self.container, *options), word, code=2)
        self.refuse(("bench",), "model", code=2)

    def test_blocks_off_the_grid_are_refused_everywhere(self):
        for command in (("bench", self.container), ("run", self.container, "--ids", "-"), ("plan", self.container)):
            self.refuse((*command, "--block", "63"), "--block", "multiple of 64 from 64 to 4096", code=2)

    def test_more_than_the_context(self):
        self.refuse(("bench", self.container, "--prompt", "4097", "--decode", "0"), "context", "4096")
        self.refuse(("bench", self.container, "--prompt", "90", "--decode", "7", "--ctx", "96"), "context of 96")

    def test_run_prints_its_profile_on_stderr(self):
        ids = self.path("prompt.ids")
        with open(ids, "w", encoding="ascii") as file:
            file.write(",".join(str(5 + i) for i in range(70)))
        usual = ("run", self.container, "--ids", ids, "-n", "3", "--temp", "0", "-q")
        plain, nothing = self.succeed(*usual)
        self.assertEqual(nothing.strip(), "")
        out, error = self.succeed(*usual, "--profile")
        self.assertEqual(out, plain)
        for words in ("prompt:", "generation:", "ms/token", "experts", "kda_heads"):
            self.assertIn(words, error)


if __name__ == "__main__":
    command_support.main(__name__)
