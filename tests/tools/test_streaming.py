#!/usr/bin/env python3
"""A model larger than its budget, as a user meets it: the same text however its weights are held and read, refusals and
damage told in a line, memory within the budget, what is kept between runs and told to others.

    test_streaming.py BINARY SOURCE_DIR [TEST…]
"""
import contextlib
import ctypes
import json
import os
import re
import resource
import shutil
import signal
import time

import command_support
from command_support import MIB, CommandTest, cut, flip

EXPERTS, LAYERS, CHOSEN = 96, 3, 4
PROMPT, GENERATED = 200, 8


def shape(config, width):
    """Four layers, three with experts of 3 x width x width; a trunk of 3 MiB."""
    text = config["text_config"]
    text["num_hidden_layers"] = LAYERS + 1
    text["linear_attn_config"].update(kda_layers=[1, 2, 3], full_attn_layers=[4], num_heads=2)
    text.update(hidden_size=256, vocab_size=1024, num_attention_heads=2, intermediate_size=256, num_experts=EXPERTS,
                num_experts_per_token=CHOSEN, moe_intermediate_size=width, routed_expert_hidden_size=width,
                max_position_embeddings=1 << 14)
    config["eos_token_id"] = []
    config["pad_token_id"] = None


class StreamingBase(CommandTest):
    width = 256

    def setUp(self):
        super().setUp()
        with open(os.path.join(self.model("tiny-k3"), "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        shape(config, self.width)
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.container = self.path("small.waste")
        self.cache, self.runtime = self.path("cache"), self.path("runtime")
        for directory in (self.cache, self.runtime):
            os.mkdir(directory, mode=0o700)
        self.succeed("synth", "-q", self.path("config.json"), self.container, "--skew", "0.8")
        self.ids = self.path("prompt.ids")
        with open(self.ids, "w", encoding="ascii") as file:
            file.write(",".join(str((7 + 61 * i) % 1024) for i in range(PROMPT)))

    def start(self, *arguments, **options):
        """Nothing of the user's own is read, kept or told."""
        environment = dict(os.environ, XDG_CACHE_HOME=self.cache, XDG_RUNTIME_DIR=self.runtime)
        return super().start(*arguments, env=environment, **options)

    def usual(self, *options, context=256, count=GENERATED, threads=2):
        return ("run", self.container, "--ids", self.ids, "-n", str(count), "--temp", "0", "--ctx", str(context), "-q",
                "--threads", str(threads), *options)

    def text(self, *options, **settings):
        return self.succeed(*self.usual("--no-learn", *options, **settings))[0].strip()

    def json(self, *options, **settings):
        return json.loads(self.succeed(*self.usual("--json", *options, **settings))[0])

    def plan(self, *options):
        return json.loads(self.succeed("plan", self.container, "--ctx", "256", "--threads", "2", "--json", *options)[0])

    def least(self):
        """The least budget, in MiB, as the refusal of less names it."""
        line = self.refuse(self.usual("--budget", "1MiB"), "--budget", code=2)
        return int(re.search(r"--budget (\d+)MiB", line).group(1))


class StreamingTest(StreamingBase):
    # The same text

    def test_every_budget_gives_the_same_text(self):
        wanted = self.text()
        self.assertEqual(len(wanted.split(",")), GENERATED)
        least, everything = self.least(), self.plan()["plans"][0]["run"]["total_bytes"] // MIB + 1
        ways = set()
        for budget in (least, least + 2, least + 5, (least + everything) // 2, everything - 2, everything):
            for pages in ("map", "huge"):
                run = self.json("--no-learn", "--budget", f"{budget}MiB", "--trunk-pages", pages)
                self.assertEqual(run["text"], wanted, (budget, pages))
                stream = run.get("prompt_stream", {"trunk": pages, "experts": "mapped"})
                ways.add((stream["trunk"].split()[-1], re.sub(r",.*", "", stream["experts"])))
        self.assertGreaterEqual(len(ways), 6, ways)
        self.assertIn("mapped", {experts for _, experts in ways})

    def test_every_way_of_reading_gives_the_same_text(self):
        wanted = self.text()
        least = self.least()
        for budget in (least, least + 6):
            for options in (("--io", "uring"), ("--io", "threads"), ("--io", "buffered"), ("--policy", "lru"),
                            ("--policy", "lfu"), ("--policy", "router"), ("--no-look-ahead",), ("--no-verify",),
                            ("--block", "64"), ("--lock",)):
                self.assertEqual(self.text("--budget", f"{budget}MiB", *options), wanted, (budget, options))
            self.assertEqual(self.text("--budget", f"{budget}MiB", threads=1), wanted, budget)

    def test_says_how_it_reads(self):
        for option, words in (("uring", "io_uring, direct"), ("threads", "threads, direct"),
                              ("buffered", "through the page cache (as asked)")):
            found = self.json("--no-learn", "--budget", f"{self.least() + 6}MiB", "--io", option)
            self.assertIn(words, found["prompt_stream"]["experts"])

    def test_reads_as_the_drive_was_measured(self):
        options = ("--no-learn", "--budget", f"{self.least() + 6}MiB")
        self.assertIn("depth 8, pieces of 1 MiB", self.json(*options)["prompt_stream"]["experts"])
        wanted = self.text(*options)
        found = json.loads(self.succeed("bench", "drive", self.directory, "--size", "64K", "--depth", "3", "--file-size",
                                        "1M", "--seconds", "0.02", "--repeat", "1", "--json", "-q")[0])
        if found["direct"]:  # else it is not kept
            self.assertIn("depth 3, pieces of 64 KiB", self.json(*options)["prompt_stream"]["experts"])
            self.assertEqual(self.text(*options), wanted)

    def test_mirrors_are_read_too_and_change_nothing(self):
        options = ("--no-learn", "--budget", f"{self.least() + 6}MiB")
        wanted = self.text(*options)
        files = sorted(name for name in os.listdir(self.container) if name.startswith("experts-"))
        whole, part = self.path("whole"), self.path("part")
        shutil.copytree(self.container, whole)
        os.mkdir(part)
        for name in ("manifest.json", files[0]):
            shutil.copy(os.path.join(self.container, name), part)
        for mirrors, drives in (((whole,), 2), ((part,), 2), ((part, whole), 3)):
            more = [option for mirror in mirrors for option in ("--mirror", mirror)]
            self.assertEqual(self.text(*options, *more), wanted, mirrors)
            found = self.json(*options, *more)["prompt_stream"]["experts"]
            self.assertIn(f"{drives} directories", found)
        run = (*self.usual(*options), "--mirror")
        self.refuse((*run, self.path("none")), self.path("none"), "no such directory")
        os.rename(os.path.join(part, files[0]), os.path.join(part, "x"))
        self.refuse((*run, part), part, "has no copy")
        os.rename(os.path.join(part, "x"), os.path.join(part, files[0]))
        cut(os.path.join(part, files[0]), 4096)
        self.refuse((*run, part), files[0], "copy it again")
        os.remove(os.path.join(part, "manifest.json"))
        self.refuse((*run, part), part, "manifest.json")
        other = self.path("other.waste")
        self.succeed("synth", "demo", other, "-q")
        self.refuse((*run, other), other, "of another model")

    # Less than the least

    def test_less_than_the_least_is_refused(self):
        least = self.least()
        line = self.refuse(self.usual("--budget", f"{least - 1}MiB"), "--budget", "at the least", "what helps",
                           f"the budget is {least - 1}.0 MiB", f"--budget {least}MiB", "--block 64", code=2)
        floor = float(re.search(r"needs (\d+\.\d) MiB", line).group(1))
        self.assertLess(least - 1, floor)
        self.assertLessEqual(floor, least)
        self.text("--budget", f"{least}MiB")
        # With a long context a shorter one is among the ways out, and it is one.
        line = self.refuse(self.usual("--budget", f"{least + 8}MiB", context=16384), "--ctx", code=2)
        context = int(re.search(r"--ctx (\d+) or less", line).group(1))
        self.text("--budget", f"{least + 8}MiB", context=context)
        self.refuse(self.usual("--budget", f"{least + 8}MiB", context=context + 1), "at the least", code=2)

    # What is counted

    def test_counters_add_up(self):
        slot = self.plan()["plans"][0]["run"]["slot_bytes"]
        for budget in (self.least() + 2, self.least() + 10):
            run = self.json("--no-learn", "--budget", f"{budget}MiB")
            for stream, tokens in (("prompt_stream", PROMPT), ("generation_stream", GENERATED)):
                found = run[stream]
                self.assertEqual(found["tokens"], tokens)
                self.assertEqual(found["hits"] + found["joined"] + found["misses"], found["uses"])
                self.assertEqual(found["expert_bytes"], (found["misses"] + found["look_ahead_reads"]) * slot)
                self.assertLessEqual(found["look_ahead_used"], found["look_ahead_reads"])
                self.assertGreaterEqual(found["drive_utilisation"], 0)
            # A block asks for each expert once; a token, in each layer, for those it chose.
            self.assertLessEqual(run["prompt_stream"]["uses"], EXPERTS * LAYERS)
            self.assertEqual(run["prompt_stream"]["look_ahead_reads"], 0)
            self.assertEqual(run["prompt_stream"]["drive_bytes"], run["prompt_stream"]["expert_bytes"])
            self.assertEqual(run["generation_stream"]["uses"] % (LAYERS * CHOSEN), 0)
            self.assertLessEqual(run["generation_stream"]["uses"], GENERATED * LAYERS * CHOSEN)
        self.assertNotIn("prompt_stream", self.json())

    def test_a_block_reads_an_expert_once(self):
        run = self.plan()["plans"][0]["run"]
        records = EXPERTS * LAYERS * run["slot_bytes"]
        for block, blocks in ((256, 1), (64, 4)):
            found = self.json("--no-learn", "--budget", f"{self.least() + 1}MiB", "--block", str(block))
            self.assertLessEqual(found["prompt_stream"]["expert_bytes"], blocks * records)
            self.assertGreater(found["prompt_stream"]["expert_bytes"], 0)

    def test_statistics_for_people(self):
        _, error = self.succeed(*self.usual("--no-learn", "--budget", f"{self.least() + 2}MiB", "--layer-stats"))
        for words in (r"(?m)^prompt:$", r"(?m)^generation:$", r"experts: \d+\.\d a token; \d+\.\d % in memory",
                      r"drive: .* a token, .*/s while it read", r"waited for it: "):
            self.assertRegex(error, words)
        self.assertEqual(len(re.findall(r"(?m)^ +[123] +\d+\.\d +", error)), LAYERS, error)

    def test_bench_streams_too(self):
        out, _ = self.succeed("bench", self.container, "--json", "-q", "--prompt", "64", "--decode", "2", "--repeat", "1",
                              "--ctx", "256", "--budget", f"{self.least() + 4}MiB")
        found = json.loads(out)["prompts"][0]["stream"]
        self.assertEqual(found["hits"] + found["joined"] + found["misses"], found["uses"])
        self.assertGreater(found["expert_bytes"], 0)

    # Damage

    def test_damaged_experts_are_told(self):
        slot = self.plan()["plans"][0]["run"]["slot_bytes"]
        for expert in range(EXPERTS):
            flip(os.path.join(self.container, "experts-002.bin"), expert * slot + 77)
        for budget in (self.least(), self.least() + 6):
            for io in ("uring", "threads", "buffered"):
                line = self.refuse(self.usual("--no-learn", "--budget", f"{budget}MiB", "--io", io), "experts-002.bin",
                                   "checksum")
                self.assertRegex(line, r"^waste: layer 2 expert \d+: ")
        self.text("--budget", f"{budget}MiB", "--no-verify")

    def test_a_damaged_trunk_is_told(self):
        with open(os.path.join(self.container, "manifest.json"), encoding="utf-8") as file:
            tensors = json.load(file)["trunk"]["tensors"]
        tensor = next(tensor for tensor in tensors if tensor["name"] == "layers.2.self_attn.o_proj")
        flip(os.path.join(self.container, "trunk.bin"), tensor["offset"] + 5)
        self.refuse(self.usual("--no-learn", "--budget", f"{self.least()}MiB"), "tensor layers.2.self_attn.o_proj")

    def test_a_truncated_bank_is_told(self):
        cut(os.path.join(self.container, "experts-003.bin"), 5000)
        for budget in ("22MiB", "40MiB"):
            self.refuse(self.usual("--no-learn", "--budget", budget), "experts-003.bin", "5000 of", "missing")

    # What is kept between runs

    def hot_lists(self):
        place = os.path.join(self.cache, "waste")
        return [os.path.join(place, name) for name in os.listdir(place)] if os.path.isdir(place) else []

    def test_what_was_learned_warms_the_next_run(self):
        # A prompt that chooses fewer experts than the cache holds: all of them are kept.
        with open(self.ids, "w", encoding="ascii") as file:
            file.write("3,1,4,1,5,9")
        options = ("--budget", f"{self.least() + 16}MiB")
        plain = self.json("--no-learn", *options)
        self.assertEqual(self.hot_lists(), [])
        first = self.json(*options)
        self.assertEqual(first["prompt_stream"]["misses"], plain["prompt_stream"]["misses"])
        lists = self.hot_lists()
        self.assertEqual([os.path.basename(path)[-4:] for path in lists], [".hot"])
        second = self.json(*options)
        self.assertEqual([plain["text"], second["text"]], [first["text"]] * 2)
        self.assertLess(second["prompt_stream"]["misses"], first["prompt_stream"]["misses"] / 2)
        self.assertEqual(self.hot_lists(), lists)
        # One that is not to be used is not.
        self.assertEqual(self.json("--no-learn", *options)["prompt_stream"]["misses"],
                         first["prompt_stream"]["misses"])
        # A model that fits leaves none.
        os.unlink(lists[0])
        self.json()
        self.assertEqual(self.hot_lists(), [])

    def planned(self, budget):
        """The plan's row of that budget, and the hit rate it would have if all experts were equally likely."""
        plan = self.plan("--budget", budget)
        row, = [row for row in plan["budgets"] if row["name"] == "as given"]
        return row, row["cache_slots"] / plan["container"]["record_count"]

    def test_plans_use_what_was_learned_and_measured(self):
        budget = f"{self.least() + 4}MiB"
        row, uniform = self.planned(budget)
        self.assertAlmostEqual(row["hit_rate"], uniform)
        self.assertIsNone(row["seconds_per_token"])
        self.json("--budget", budget)
        row, uniform = self.planned(budget)
        self.assertNotAlmostEqual(row["hit_rate"], uniform, places=3)
        self.assertIn("what earlier runs", self.succeed("plan", self.container, "--ctx", "256")[0])
        flip(self.hot_lists()[0], 200)
        row, uniform = self.planned(budget)
        self.assertAlmostEqual(row["hit_rate"], uniform)
        found = json.loads(self.succeed("bench", "drive", self.directory, "--size", "64K", "--depth", "1", "--file-size",
                                        "1M", "--seconds", "0.02", "--repeat", "1", "--json", "-q")[0])
        if found["direct"]:  # else it is not the drive's rate
            seconds = self.planned(budget)[0]["seconds_per_token"]
            self.assertAlmostEqual(seconds, row["drive_bytes_per_token"] / found["best"]["bytes_per_second"])

    def test_a_damaged_list_is_a_warning(self):
        options = ("--budget", f"{self.least() + 10}MiB")
        wanted, nothing = self.succeed(*self.usual(*options))
        self.assertEqual(nothing.strip(), "")
        path, = self.hot_lists()
        for damage in (lambda: flip(path, 200), lambda: cut(path, 7), lambda: os.truncate(path, 0)):
            damage()
            found, error = self.succeed(*self.usual(*options))
            self.assertEqual(found, wanted)
            self.assertEqual(len(error.strip().splitlines()), 1, error)
            self.assertIn(path, error)
            self.assertEqual(self.succeed(*self.usual(*options))[1].strip(), "", "it was started anew")

    def test_a_cache_that_cannot_be_written_is_a_warning(self):
        os.rmdir(self.cache)
        with open(self.cache, "w", encoding="ascii"):
            pass
        wanted = self.text()
        found, error = self.succeed(*self.usual("--budget", f"{self.least() + 2}MiB"))
        self.assertEqual(found.strip(), wanted)
        self.assertIn(self.cache, error)

    # The machine

    def engines(self, *options):
        return self.plan(*options)["machine"]["engines"]

    def test_two_runs_at_once_see_each_other(self):
        budget = self.least() + 12
        wanted = self.text()
        self.assertEqual(self.engines(), [])
        first = self.start(*self.usual("--no-learn", "--budget", f"{budget}MiB", count=600, context=900), bufsize=0)
        try:
            begun = first.stdout.read(1)
            # So that it is there as long as it takes, however fast the machine.
            first.send_signal(signal.SIGSTOP)
            found = self.engines()
            self.assertEqual([engine["pid"] for engine in found], [first.pid])
            self.assertLessEqual(found[0]["budget_bytes"], budget * MIB)
            self.assertGreater(found[0]["budget_bytes"], (budget - 4) * MIB)
            self.assertEqual(self.text("--budget", f"{self.least()}MiB"), wanted)
            first.send_signal(signal.SIGCONT)
            second = self.start(*self.usual("--no-learn", "--budget", f"{budget}MiB", count=300, context=600))
            both = [process.communicate(timeout=60) for process in (first, second)]
        finally:
            first.kill()
            first.communicate()
        self.assertEqual([first.returncode, second.returncode], [0, 0], both)
        text = (begun + both[0][0]).decode()
        self.assertTrue(text.startswith(wanted) and text.startswith(both[1][0].decode().strip()), both)
        self.assertEqual(self.engines(), [])


class MemoryTest(StreamingBase):
    """Experts of 230 KiB: slots for all of them would take 65 MiB."""
    width = 384

    @staticmethod
    def bytes_in(status, name):
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        return int(found.group(1)) * 1024 if found else 0

    def peaks(self, *options):
        """Most that a run is seen with: (anonymous, resident) bytes."""
        process = self.start(*self.usual("--no-learn", *options))
        anonymous = resident = 0
        while process.poll() is None:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
                status = file.read()
            anonymous = max(anonymous, self.bytes_in(status, "RssAnon"))
            resident = max(resident, self.bytes_in(status, "VmHWM"))
            time.sleep(0.002)
        _, error = process.communicate()
        self.assertEqual(process.returncode, 0, error)
        return anonymous, resident

    def test_a_run_stays_within_its_budget(self):
        least = self.least()
        for more, options in ((0, ()), (10, ()), (40, ()), (40, ("--trunk-pages", "huge")), (40, ("--io", "threads"))):
            budget = (least + more) * MIB
            anonymous, resident = self.peaks("--budget", str(budget), *options)
            print(f"budget {budget / MIB:.0f} MiB: {anonymous / MIB:.1f} MiB anonymous, {resident / MIB:.1f} resident",
                  flush=True)
            self.assertLessEqual(anonymous, budget * 1.02 + 16 * MIB)
            self.assertLessEqual(resident, budget * 1.02 + 16 * MIB)
            self.assertGreater(anonymous, more * MIB / 2, "a budget is there to be used")

    # Sanitizers let nothing be locked and say that all was.

    def test_what_cannot_be_locked_is_said(self):
        def little():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
            # Root may lock what it likes, unless it lays that down: PR_CAPBSET_DROP, CAP_IPC_LOCK.
            ctypes.CDLL(None).prctl(24, 14, 0, 0, 0)
        arguments = [option for option in self.usual("--no-learn", "--lock", "-v") if option != "-q"]
        for budget in (f"{self.least() + 4}MiB", "auto"):
            _, error = self.succeed(*arguments, "--budget", budget, preexec_fn=little)
            self.assertRegex(error, r"locked in memory and no more: .*`ulimit -l` is the limit")

    @contextlib.contextmanager
    def control_group(self, limit_bytes):
        """The cgroup.procs of a new group below the test's own, of version 1, with so much memory."""
        with open("/proc/self/cgroup", encoding="ascii") as file:
            own = re.search(r"(?m)^\d+:memory:(.*)$", file.read())
        place = own and f"/sys/fs/cgroup/memory{own.group(1).rstrip('/')}/waste-test-{os.getpid()}"
        try:
            if not place:
                raise OSError("no memory control group of version 1")
            os.mkdir(place)
            with open(f"{place}/memory.limit_in_bytes", "w", encoding="ascii") as file:
                file.write(str(limit_bytes))
        except OSError as error:
            if place and os.path.isdir(place):
                os.rmdir(place)
            self.skipTest(f"cannot make a control group: {error}")
        try:
            yield f"{place}/cgroup.procs"
        finally:
            os.rmdir(place)

    def test_a_control_group_is_a_limit(self):
        wanted = self.text()
        limit = (self.least() + 20) * MIB
        with self.control_group(limit) as processes:
            def join():
                with open(processes, "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))
            plan = json.loads(self.succeed("plan", self.container, "--ctx", "256", "--json", preexec_fn=join)[0])
            self.assertEqual(plan["machine"]["usable_bytes"], limit)
            for options in ((), ("--budget", "10G"), ("--io", "buffered")):
                found = json.loads(self.succeed(*self.usual("--json", "--no-learn", *options), preexec_fn=join)[0])
                self.assertEqual(found["text"], wanted)
                self.assertIn("slots", found["prompt_stream"]["experts"])


if __name__ == "__main__":
    command_support.main(__name__)
