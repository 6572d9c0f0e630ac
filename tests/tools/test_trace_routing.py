#!/usr/bin/env python3
"""`waste run --trace-routing` as a user meets it.

    test_trace_routing.py BINARY SOURCE_DIR [TEST…]
"""
import json
import os

import command_support
from command_support import CommandTest, file_system


class TraceRoutingTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.container = self.path("tiny.waste")
        self.trace = self.path("trace.jsonl")
        self.convert(self.model("tiny-k3"), self.container)
        with open(os.path.join(self.model("tiny-k3"), "config.json"), encoding="utf-8") as file:
            config = json.load(file)["text_config"]
        self.layers = config["num_hidden_layers"] - config["first_k_dense_replace"]
        self.experts = config["num_experts"]
        self.top_k = config["num_experts_per_token"]

    def ids(self, count):
        path = self.path(f"{count}.ids")
        with open(path, "w", encoding="ascii") as file:
            file.write(",".join(str(5 + i) for i in range(count)))
        return path

    def arguments(self, tokens=70, generated=3):
        return ("run", self.container, "--ids", self.ids(tokens), "-n", str(generated), "--temp", "0", "-q")

    def run_traced(self, *options, tokens=70, generated=3):
        self.succeed(*self.arguments(tokens, generated), "--trace-routing", self.trace, *options)
        with open(self.trace, encoding="ascii") as file:
            return [json.loads(line) for line in file]

    def test_a_line_a_token_in_order(self):
        lines = self.run_traced()
        self.assertEqual([line["position"] for line in lines], list(range(70 + 3)))
        for line in lines:
            self.assertEqual(list(line), ["position", "layers"])
            self.assertEqual(len(line["layers"]), self.layers)
            for ids in line["layers"]:
                self.assertEqual(len(set(ids)), self.top_k)
                self.assertTrue(all(0 <= i < self.experts for i in ids), ids)

    def test_scores_are_the_routers(self):
        plain = self.run_traced()
        lines = self.run_traced("--trace-scores")
        self.assertEqual([line["layers"] for line in lines], [line["layers"] for line in plain])
        for line in lines:
            self.assertEqual([len(scores) for scores in line["scores"]], [self.experts] * self.layers)
            self.assertTrue(all(0 <= score <= 1 for scores in line["scores"] for score in scores))
        self.assertGreater(len({score for line in lines for score in line["scores"][0]}), self.experts)

    def test_blocks_and_threads_change_nothing(self):
        wanted = self.run_traced("--trace-scores", "--threads", "1", "--block", "512", tokens=200)
        for options in (("--block", "64"), ("--threads", "2")):
            self.assertEqual(self.run_traced("--trace-scores", *options, tokens=200), wanted, options)

    def test_the_text_stays_the_same(self):
        plain, _ = self.succeed(*self.arguments())
        traced, _ = self.succeed(*self.arguments(), "--trace-routing", self.trace)
        self.assertEqual(traced, plain)
        self.assertEqual([name for name in os.listdir(self.directory) if name.startswith("trace")], ["trace.jsonl"])

    def test_what_cannot_be_written_is_said(self):
        self.refuse((*self.arguments(), "--trace-routing", self.path("none", "trace.jsonl")), "none")
        self.refuse((*self.arguments(), "--trace-routing", self.container), "not a regular file")
        self.refuse((*self.arguments(), "--trace-scores"), "--trace-routing", code=2)

    def test_a_full_drive_is_said(self):
        with file_system(self.directory, "size=16k") as place:
            code, _, error = self.run_command(*self.arguments(), "--trace-routing", os.path.join(place, "t.jsonl"),
                                              "--trace-scores")
            self.assertEqual(code, 1)
            self.assertIn("t.jsonl", error)
            self.assertFalse(os.path.exists(os.path.join(place, "t.jsonl")))


if __name__ == "__main__":
    command_support.main(__name__)
