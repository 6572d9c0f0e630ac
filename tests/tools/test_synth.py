#!/usr/bin/env python3
"""`waste synth` as a user meets it: what it writes is whole, what it refuses is said in a line, what it stops at is gone.

    test_synth.py BINARY SOURCE_DIR [TEST…]
"""
import json
import os
import re
import signal
import time

import command_support
from command_support import MIB, CommandTest, digests, file_system


class SynthTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.destination = self.path("out.waste")

    def config(self, name="tiny-k3"):
        return os.path.join(self.model(name), "config.json")

    def synth(self, *arguments):
        return self.succeed("synth", "-q", *arguments)

    def refuse_synth(self, shape, *mentioned, options=(), **settings):
        """As refuse(), and nothing may be left behind."""
        before = sorted(os.listdir(self.directory))
        line = self.refuse(("synth", "-q", shape, self.destination, *options), *mentioned, **settings)
        self.assertEqual(sorted(os.listdir(self.directory)), before, line)
        return line

    def verified(self, directory):
        out, _ = self.succeed("verify", "-q", directory)
        self.assertIn("every checksum matches", out)
        return out

    def test_writes_a_container_that_verifies(self):
        out, error = self.succeed("synth", self.config(), self.destination)
        self.assertEqual(out, "")
        self.assertIn("no tokenizer, so prompts are given with --ids", error)
        fingerprint = re.search("fingerprint ([0-9a-f]{32})", error).group(1)
        self.assertIn(fingerprint, self.verified(self.destination))
        self.assertEqual(os.listdir(self.directory), ["out.waste"])

    def test_knows_presets_and_formats(self):
        self.synth("demo", self.destination, "--trunk", "q8", "--experts", "q4", "--unique-experts", "2")
        self.verified(self.destination)
        with open(os.path.join(self.destination, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual(manifest["recipe"]["trunk"], "q8, seed 1, skew 0, random weights")
        self.assertEqual(manifest["recipe"]["experts"], "q4, 2 of 64 stored, random weights")
        bank = manifest["banks"][0]
        self.assertEqual(bank["bytes"], 2 * bank["record_bytes"] + 64 * 32 + 80)

    def test_same_seed_same_bytes(self):
        found = []
        for seed, threads in ((5, 1), (5, 3), (6, 3)):
            directory = self.path(f"{seed}-{threads}")
            self.synth(self.config("odd-k3"), directory, "--seed", str(seed), "-j", str(threads), "--skew", "1")
            found.append(digests(directory))
        self.assertEqual(found[0], found[1])
        self.assertNotEqual(found[0], found[2])

    def test_wrong_usage(self):
        tiny = self.config()
        self.refuse_synth("k3max", "'k3max' is neither a file nor one of the presets (k3, k3mini, klmini, demo)", code=2)
        for options, word in ((("--skew", "-1"), "--skew"), (("--skew", "11"), "--skew"), (("--skew", "x"), "--skew"),
                              (("--skew", "nan"), "--skew"), (("--unique-experts", "0"), "--unique-experts"),
                              (("--unique-experts", "-3"), "--unique-experts"),
                              (("--unique-experts", "17"), "must lie in 1..16"),
                              (("--seed", "-1"), "--seed"), (("--trunk", "q5"), "--trunk"),
                              (("--experts", "auto"), "--experts"), (("--threads", "0"), "--threads"),
                              (("--frobnicate",), "--frobnicate")):
            self.refuse_synth(tiny, word, options=options, code=2)
        self.refuse(("synth", tiny), "destination", code=2)

    def test_bad_configs(self):
        self.refuse_synth(self.path("none.json"), "none.json", "No such file")
        self.refuse_synth(self.model("tiny-k3"), "is a directory")
        with open(self.config(), encoding="utf-8") as file:
            good = json.load(file)
        for content, word in (("", "is not valid JSON"), ("[]", "must be a JSON object"),
                              ('{"model_type": "llama"}', "'llama' is not supported"),
                              (json.dumps({**good, "text_config": {}}), "vocab_size")):
            path = self.path("config.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            self.refuse_synth(path, "config.json", word)

    def test_existing_targets(self):
        self.synth(self.config(), self.destination)
        before = digests(self.destination)
        self.refuse_synth(self.config(), "out.waste", "exists already", "--force")
        self.assertEqual(digests(self.destination), before)
        self.synth(self.config(), self.destination + "/", "--force", "--seed", "2")
        self.assertNotEqual(digests(self.destination), before)
        self.assertEqual(os.listdir(self.directory), ["out.waste"])

    def test_force_spares_converted_models_and_other_folders(self):
        self.convert(self.model("tiny-k3"), self.destination)
        before = digests(self.destination)
        self.refuse_synth(self.config(), "holds a converted model", options=("--force",))
        self.assertEqual(digests(self.destination), before)
        self.destination = self.path("folder")
        os.makedirs(self.path("folder", "inner"))
        self.refuse_synth(self.config(), "is not empty", options=("--force",))
        os.rmdir(self.path("folder", "inner"))
        self.synth(self.config(), self.destination)
        self.verified(self.destination)

    def test_no_parent_folder(self):
        self.destination = self.path("none", "out.waste")
        self.refuse_synth(self.config(), "none", "No such file")

    def test_too_little_space(self):
        with file_system(self.directory, f"size={8 * MIB}") as place:
            self.refuse(("synth", "-q", self.config(), os.path.join(place, "x")), "needs", "GiB free")
            self.assertEqual(os.listdir(place), [])

    def test_interrupted_leaves_nothing(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130)):
            process = self.start("synth", "-q", "klmini", self.destination, "--unique-experts", "24")
            deadline = time.monotonic() + 60
            while not os.path.exists(os.path.join(self.destination + ".partial", "trunk.bin")):
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            process.send_signal(number)
            _, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, code, error)
            self.assertIn(b"what was written is removed again", error)
            self.assertEqual(os.listdir(self.directory), [])

    def test_killed_is_tidied_up_by_the_next(self):
        process = self.start("synth", "-q", "klmini", self.destination, "--unique-experts", "24")
        partial = self.destination + ".partial"
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(partial, "trunk.bin")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.kill()
        process.communicate()
        self.assertFalse(os.path.exists(self.destination))
        self.synth(self.config(), self.destination)
        self.verified(self.destination)
        self.assertEqual(os.listdir(self.directory), ["out.waste"])


if __name__ == "__main__":
    command_support.main(__name__)
