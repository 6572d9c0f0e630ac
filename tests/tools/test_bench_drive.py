#!/usr/bin/env python3
"""`waste bench drive` as a user meets it. What it measures is never judged here, only that it is whole.

    test_bench_drive.py BINARY SOURCE_DIR [TEST…]
"""
import json
import os
import signal

import command_support
from command_support import CommandTest

TINY = ("--file-size", "1M", "--size", "64K,256K", "--depth", "1,2", "--repeat", "2", "--seconds", "0.01")


class BenchDriveTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.place = self.path("place")
        os.mkdir(self.place)
        self.environment = {**os.environ, "XDG_CACHE_HOME": self.path("cache")}

    def bench(self, *options):
        return self.succeed("bench", "drive", self.place, *TINY, *options, env=self.environment)

    def test_json_has_its_fields(self):
        out, _ = self.bench("--json", "-q")
        result = json.loads(out)
        self.assertEqual(result["directory"], self.place)
        self.assertIsInstance(result["direct"], bool)
        self.assertRegex(result["reader"], "^(io_uring|threads)")
        self.assertGreater(result["write_bytes_per_second"], 0)
        for field in ("device", "file_system", "mount_point", "name", "model", "link", "rotational"):
            self.assertIn(field, result["drive"])
        self.assertEqual([(row["record_bytes"], row["depth"]) for row in result["rows"]],
                         [(65536, 1), (65536, 2), (262144, 1), (262144, 2)])
        for row in result["rows"]:
            self.assertEqual(len(row["runs_bytes_per_second"]), 2)
            self.assertLessEqual(min(row["runs_bytes_per_second"]), row["bytes_per_second"])
            self.assertGreater(row["median_seconds"], 0)
            self.assertGreaterEqual(row["p99_seconds"], row["median_seconds"])
        self.assertIn(result["best"]["record_bytes"], (65536, 262144))
        self.assertEqual(os.listdir(self.place), [])

    def test_text_says_what_it_does_and_what_is_best(self):
        out, error = self.bench()
        self.assertIn("writes 1.0 MB into " + self.place, error)
        for words in (self.place, "record", "depth", "GB/s", "median", "p99", "64 KiB", "256 KiB", "best: records of"):
            self.assertIn(words, out)

    def test_of_a_model_its_experts_are_read(self):
        model = self.path("model.waste")
        self.succeed("synth", "demo", model, "-q")
        with open(os.path.join(model, "manifest.json"), encoding="utf-8") as file:
            banks = json.load(file)["banks"]
        before = sorted(os.listdir(model))
        usual = ("bench", "drive", model, "--depth", "2", "--repeat", "1", "--seconds", "0.01")
        out, error = self.succeed(*usual, env=self.environment)
        self.assertIn("reads experts of " + model, error)
        self.assertIn("of experts", out)
        result = json.loads(self.succeed(*usual, "--json", "-q", env=self.environment)[0])
        self.assertEqual(result["file_bytes"], sum(bank["bytes"] for bank in banks))
        self.assertIsNone(result["write_bytes_per_second"])
        self.assertEqual([row["depth"] for row in result["rows"]], [2])
        self.assertEqual(sorted(os.listdir(model)), before)
        result = json.loads(self.succeed(*usual, "--size", "4K", "--json", "-q", env=self.environment)[0])
        self.assertEqual([row["record_bytes"] for row in result["rows"]], [4096])
        self.refuse((*usual, "--size", "1G", "-q"), "records of 1073741824 bytes")

    def test_the_best_is_kept_for_later_plans(self):
        out, _ = self.bench("--json", "-q")
        result = json.loads(out)
        kept = self.path("cache", "waste", "drives.json")
        if not result["direct"]:
            self.assertFalse(os.path.exists(kept))
            self.skipTest("this directory cannot be read past the page cache")
        with open(kept, encoding="utf-8") as file:
            drive = json.load(file)["drives"][0]
        self.assertEqual(drive["bytes_per_second"], result["best"]["bytes_per_second"])
        self.assertEqual(drive["device"], result["drive"]["device"])

    def test_a_cache_that_cannot_be_written_is_a_warning(self):
        with open(self.path("cache"), "w", encoding="ascii"):
            pass
        out, error = self.bench("--json", "-q")
        if json.loads(out)["direct"]:
            self.assertIn("not kept for later plans and runs", error)

    def test_memory_is_not_called_a_drive(self):
        with command_support.file_system(self.directory, "size=8m") as place:
            out, error = self.succeed("bench", "drive", place, *TINY, "--json", "-q", env=self.environment)
        self.assertFalse(json.loads(out)["direct"])
        self.assertIn("not the drive's figures", error)
        self.assertFalse(os.path.exists(self.path("cache", "waste", "drives.json")))

    def test_wrong_requests(self):
        usual = ("bench", "drive")
        self.refuse((*usual, self.path("none")), self.path("none"), "No such file")
        self.refuse(usual, "directory", code=2)
        self.refuse((*usual, self.place, "--size", "1000"), "multiple of 4096", code=2)
        self.refuse((*usual, self.place, "--size", "many"), "--size", code=2)
        self.refuse((*usual, self.place, "--depth", "0"), "--depth", code=2)
        self.refuse((*usual, self.place, "--size", "2M", "--file-size", "1M", "-q"), "records of 2097152 bytes")
        self.refuse((*usual, self.place, "--file-size", "1000000T", "-q"), self.place, "are free")

    def test_a_model_is_still_asked_for(self):
        self.refuse(("bench",), "model", code=2)

    def test_interruption_leaves_nothing(self):
        process = self.start("bench", "drive", self.place, "--file-size", "16M", "--size", "1M", "--seconds", "0.1",
                             "--repeat", "1000", env=self.environment)
        self.assertIn(b"writes", process.stderr.readline())
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"interrupted", error)
        self.assertEqual(os.listdir(self.place), [])


if __name__ == "__main__":
    command_support.main(__name__)
