#!/usr/bin/env python3
"""The commands that tell about a model: plan, info, verify, tokenize, detokenize.

    test_inspect.py BINARY SOURCE_DIR [TEST…]
"""
import fcntl
import json
import os
import re
import shutil
import tempfile

import command_support
from command_support import cut, flip

MODELS = ("demo-model", "tiny-k3", "tiny-kimi-linear")


class InspectTest(command_support.CommandTest):
    """Three containers that all tests share and none changes."""

    @classmethod
    def setUpClass(cls):
        shared = tempfile.mkdtemp(prefix="waste-test-")
        cls.addClassCleanup(shutil.rmtree, shared)
        cls.sources = {name: os.path.join(cls.data, name) for name in MODELS}
        cls.containers = {name: os.path.join(shared, name + ".waste") for name in MODELS}
        runner = cls("run_command")  # any method's name makes an instance that can run commands
        for name in MODELS:
            runner.convert(cls.sources[name], cls.containers[name])

    def run_with(self, *arguments, stdin=b""):
        """Exit code, stdout and stderr."""
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            return self.run_command(*map(str, arguments), stdin=file)

    def output(self, *arguments, stdin=b""):
        code, out, err = self.run_with(*arguments, stdin=stdin)
        self.assertEqual(code, 0, (arguments, out, err))
        return out

    def fail_with(self, expected_code, pattern, *arguments, stdin=b""):
        """Nothing on stdout; stderr matches, and is one line unless it is about usage."""
        code, out, err = self.run_with(*arguments, stdin=stdin)
        self.assertEqual(code, expected_code, (arguments, out, err))
        self.assertRegex(err, pattern)
        self.assertEqual(out, "", arguments)
        if expected_code == 1:
            self.assertEqual(err.count("\n"), 1, err)

    def copy_of(self, name):
        return shutil.copytree(self.containers[name], self.path("copy"))


class UsageTest(InspectTest):
    def test_wrong_usage_is_2_and_names_the_word(self):
        demo = self.containers["demo-model"]
        for arguments, word in [
            (["plan"], "model"),
            (["plan", demo, "--ctx", "0"], "--ctx"),
            (["plan", demo, "--ctx", "many"], "--ctx"),
            (["plan", demo, "--trunk", "q5"], "q5"),
            (["plan", demo, "--jsom"], "--jsom"),
            (["info"], "model"),
            (["verify", demo, "--all"], "--source"),
            (["verify", demo, "--samples", "3"], "--source"),
            (["verify", demo, "--source", self.data, "--all", "--samples", "3"], "excludes"),
            (["tokenize", demo, "text", "--file", "x"], "excludes"),
            (["detokenize", demo, "5", "--ids", "x"], "excludes"),
        ]:
            self.fail_with(2, re.escape(word), *arguments)

    def test_help_has_examples(self):
        for command in ("plan", "info", "verify", "tokenize", "detokenize"):
            self.assertIn(f"waste {command} ", self.output(command, "--help").split("Examples:")[1])


class PlanTest(InspectTest):
    def plan(self, *arguments):
        return json.loads(self.output("plan", *arguments, "--json"))

    def test_container_sizes_are_those_of_its_files(self):
        for name, path in self.containers.items():
            sizes = self.plan(path)["container"]
            files = {file: os.path.getsize(os.path.join(path, file)) for file in os.listdir(path)}
            self.assertEqual(sizes["trunk_bytes"], files["trunk.bin"], name)
            banks = sum(size for file, size in files.items() if file.startswith("experts-"))
            self.assertEqual(sizes["expert_bytes"], banks, name)
            self.assertEqual(sizes["total_bytes"], banks + files["trunk.bin"], name)

    def test_release_and_config_agree_with_the_container(self):
        for name, source in self.sources.items():
            of_container = self.plan(self.containers[name], "--budget", "1G")
            for path, kind in [(source, "release"), (os.path.join(source, "config.json"), "config")]:
                of_source = self.plan(path, "--budget", "1G")
                self.assertEqual(of_source["source"], kind)
                self.assertEqual(of_source["container"], of_container["container"], path)
                self.assertEqual(of_source["plans"], of_container["plans"], path)

    def test_recipes_are_those_of_their_own_plans(self):
        for name, source in self.sources.items():
            rows = self.plan(source, "--recipes", "--ctx", 4096)["recipes"]
            self.assertEqual(rows, self.plan(os.path.join(source, "config.json"), "--recipes", "--ctx", 4096)["recipes"])
            self.assertEqual(len({(row["trunk"], row["experts"]) for row in rows}), len(rows))
            self.assertEqual([row["total_bytes"] for row in rows], sorted(row["total_bytes"] for row in rows))
            for row in rows:
                alone = self.plan(source, "--trunk", row["trunk"], "--experts", row["experts"], "--ctx", 4096)
                self.assertEqual(row["total_bytes"], alone["container"]["total_bytes"], (name, row))
                self.assertEqual(row["floor_bytes"], alone["plans"][0]["floor_bytes"])
                self.assertEqual(row["perplexity_percent"] is None, row["experts"] != "mxfp4")
        text = self.output("plan", self.sources["demo-model"], "--recipes")
        for words in ("--experts", "q4pure", "+1.41 %", "not measured", "floor"):
            self.assertIn(words, text)
        self.fail_with(1, "converted already", "plan", self.containers["demo-model"], "--recipes")
        self.fail_with(2, "excludes", "plan", self.sources["demo-model"], "--recipes", "--trunk", "q8")

    def test_rows_sum_to_the_floor(self):
        parts = ("trunk_bytes", "kda_state_bytes", "conv_ring_bytes", "mla_latent_bytes", "activation_bytes",
                 "least_cache_bytes", "program_bytes")
        plans = self.plan(self.containers["demo-model"])["plans"]
        self.assertEqual([plan["context_length"] for plan in plans], [4096, 32768, 131072, 1048576])
        for plan in plans:
            self.assertEqual(plan["floor_bytes"], sum(plan[part] for part in parts))
            self.assertEqual(plan["mla_latent_bytes"], 3 * plan["context_length"] * (128 + 64) * 4)
            self.assertEqual(plan["kda_state_bytes"], 6 * 3 * 128 * 128 * 4)
            self.assertIn(plan["fit"], ("comfortable", "tight", "does_not_fit"))

    def test_contexts(self):
        demo = self.containers["demo-model"]
        lengths = [p["context_length"] for p in self.plan("--ctx", "64,8", "--ctx", "8", demo)["plans"]]
        self.assertEqual(lengths, [8, 64])
        lengths = [p["context_length"] for p in self.plan(self.containers["tiny-k3"])["plans"]]
        self.assertEqual(lengths, [4096], "the usual lengths are cut at the model's own and not repeated")
        self.fail_with(2, "--ctx 4097: the model's context has 4096", "plan", self.containers["tiny-k3"], "--ctx", 4097)

    def test_recipes(self):
        source = self.sources["tiny-kimi-linear"]
        sizes = [self.plan(source, "--trunk", t, "--experts", e)["container"]["total_bytes"]
                 for t, e in (("q4", "q4"), ("q8", "q8"), ("bf16", "bf16"), ("f32", "f32"))]
        self.assertEqual(sizes, sorted(set(sizes)))
        self.fail_with(1, "converted already", "plan", self.containers["tiny-k3"], "--trunk", "q4")
        self.fail_with(2, "MXFP4", "plan", source, "--experts", "mxfp4")

    def test_text(self):
        out = self.output("plan", self.containers["demo-model"])
        for words in ("Kimi K3, 9 layers (6 KDA, 3 MLA)", "KDA states", "= floor", "This machine has"):
            self.assertIn(words, out)
        self.assertRegex(out, r"\n  4096: (fits|does not fit)")

    def test_budget(self):
        demo = self.containers["demo-model"]
        plan = self.plan(demo, "--ctx", 64)["plans"][0]
        sizes = self.plan(demo)["container"]
        whole = plan["run"]
        self.assertEqual((whole["experts"], whole["trunk"]), ("mapped", "mapped"))
        self.assertEqual(whole["expert_bytes"], sizes["expert_bytes"])
        self.assertIn(whole["budget_source"], ("safe", "available", "least"))
        for budget in (plan["floor_bytes"], whole["total_bytes"] - 1):
            run = self.plan(demo, "--ctx", 64, "--budget", budget)["plans"][0]["run"]
            self.assertEqual((run["budget_bytes"], run["budget_source"]), (budget, "asked"))
            self.assertEqual((run["experts"], run["trunk"]), ("streamed", "mapped"))
            self.assertLessEqual(run["total_bytes"], budget)
            self.assertLessEqual(run["cache_slots"], sizes["record_count"])
        run = self.plan(demo, "--ctx", 64, "--budget", plan["run"]["least_bytes"])["plans"][0]["run"]
        self.assertEqual(run["total_bytes"], run["least_bytes"])
        self.assertEqual(self.plan(demo, "--budget", "4096TiB")["plans"][0]["run"]["budget_source"], "usable")
        for bad in ("lots", "-1", "1e9", "24 G B"):
            self.fail_with(2, "--budget.*is not a size; write it like 24G", "plan", demo, "--budget", bad)

    def test_a_budget_that_is_too_small_is_told(self):
        demo = self.containers["demo-model"]
        plan = self.plan(demo, "--budget", "1M")["plans"][0]
        self.assertIsNone(plan["run"])
        out = self.output("plan", demo, "--budget", "1M")
        self.assertRegex(out, r"\n  4096: does not fit: a context of 4096 in blocks of 512 tokens needs [0-9.]+ MiB at the "
                              r"least, and the budget is 1.0 MiB; what helps: --budget [0-9]+MiB; .*--block 64")
        enough = re.search(r"--budget (\d+MiB)", out)[1]
        self.assertIsNotNone(self.plan(demo, "--budget", enough)["plans"][0]["run"])

    def test_what_a_budget_buys(self):
        source = self.sources["demo-model"]
        plain = self.plan(source, "--ctx", 4096)
        rows = plain["budgets"]
        self.assertEqual(rows[0]["name"], "least")
        self.assertIn("everything", [row["name"] for row in rows])
        budgets = [row["budget_bytes"] for row in rows]
        self.assertEqual(budgets, sorted(set(budgets)))
        drive = [row["drive_bytes_per_token"] for row in rows]
        self.assertEqual(drive, sorted(drive, reverse=True))
        self.assertEqual((rows[-1]["hit_rate"], drive[-1]), (1, 0))
        for row in rows:
            if row["experts"] == "streamed":
                self.assertAlmostEqual(row["hit_rate"], row["cache_slots"] / plain["container"]["record_count"])
            self.assertIsNone(row["seconds_per_token"])
        rated = self.plan(source, "--ctx", 4096, "--drive-rate", 2, "--memory-rate", 10, "--budget", "7M")["budgets"]
        for row in rated:
            self.assertAlmostEqual(row["seconds_per_token"], max(row["drive_bytes_per_token"] / 2e9,
                                                                 row["memory_bytes_per_token"] / 10e9))
        self.fail_with(2, "--drive-rate", "plan", source, "--drive-rate", 0)

    def test_other_engines_are_told(self):
        demo = self.containers["demo-model"]
        runtime = self.path("runtime")
        os.mkdir(runtime, 0o700)
        os.mkdir(os.path.join(runtime, "waste"), 0o700)
        os.environ["XDG_RUNTIME_DIR"] = runtime
        self.addCleanup(os.environ.pop, "XDG_RUNTIME_DIR")
        self.assertEqual(self.plan(demo)["machine"]["engines"], [])
        with open(os.path.join(runtime, "waste", f"{os.getpid()}-0"), "w") as file:
            file.write("budget 1073741824\n")
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            engines = self.plan(demo)["machine"]["engines"]
            self.assertEqual([(e["pid"], e["budget_bytes"]) for e in engines], [(os.getpid(), 1 << 30)])
            self.assertIn("1 other engine holds budgets of 1.00 GiB together", self.output("plan", demo))
        self.assertEqual(self.plan(demo)["machine"]["engines"], [])
        os.chmod(os.path.join(runtime, "waste"), 0o755)
        code, _, err = self.run_with("plan", demo)
        self.assertEqual(code, 0)
        self.assertIn("other engines on this machine are not counted", err)

    def test_refusals(self):
        self.fail_with(1, "neither a container nor a release", "plan", self.directory)
        self.fail_with(1, "neither a container nor a release", "plan", "/nonexistent")
        bad = self.path("config.json")
        for text, pattern in [("{", "not valid JSON"), ('{"model_type": "llama"}', "llama"),
                              ('{"model_type": "kimi_linear"}', "vocab_size: is missing")]:
            with open(bad, "w") as file:
                file.write(text)
            self.fail_with(1, pattern, "plan", bad)


class InfoTest(InspectTest):
    def test_json(self):
        demo = json.loads(self.output("info", self.containers["demo-model"], "--json"))
        with open(os.path.join(self.containers["demo-model"], "manifest.json")) as file:
            manifest = json.load(file)
        self.assertEqual(demo["fingerprint"], manifest["fingerprint"])
        self.assertEqual((demo["family"], demo["layers"], demo["kda_layers"], demo["mla_layers"]), ("kimi_k3", 9, 6, 3))
        self.assertEqual((demo["has_tokenizer"], demo["chat_format"]), (True, "xtml"))
        self.assertEqual((demo["trunk_recipe"], demo["expert_recipe"]), ("q4", "mxfp4"))
        self.assertEqual(demo["max_context"], 1048576)
        self.assertNotIn("tensors", demo)
        tiny = json.loads(self.output("info", self.containers["tiny-kimi-linear"], "--json"))
        self.assertEqual((tiny["family"], tiny["has_tokenizer"], tiny["chat_format"]), ("kimi_linear", False, None))

    def test_tensors_and_banks(self):
        path = self.containers["tiny-k3"]
        info = json.loads(self.output("info", path, "--tensors", "--experts", "--json"))
        by_format = {}
        for tensor in info["tensors"]:
            by_format[tensor["format"]] = by_format.get(tensor["format"], 0) + tensor["bytes"]
        self.assertEqual(by_format, info["trunk_bytes_by_format"])
        self.assertEqual(sum(bank["bytes"] for bank in info["banks"]), info["expert_bytes"])
        self.assertEqual([bank["layer"] for bank in info["banks"]], list(range(1, 13)))
        out = self.output("info", path, "--tensors", "--experts")
        self.assertRegex(out, r"layers\.3\.self_attn\.k_absorb\S* +q8 ")
        self.assertIn("experts-012.bin", out)

    def test_refuses_a_release(self):
        self.fail_with(1, "waste convert", "info", self.sources["tiny-k3"])


class VerifyTest(InspectTest):
    def verify(self, expected_code, *arguments):
        code, out, err = self.run_with("verify", *arguments, "--json", "--quiet")
        self.assertEqual(code, expected_code, (out, err))
        return json.loads(out)

    def test_sound_containers(self):
        for name, path in self.containers.items():
            self.assertIn("every checksum matches", self.output("verify", path, "--quiet"))
            result = self.verify(0, path, "--source", self.sources[name], "--all")
            self.assertEqual((result["ok"], result["damage"], result["source"]["differences"]), (True, [], []))
            info = json.loads(self.output("info", path, "--tensors", "--experts", "--json"))
            self.assertEqual(result["source"]["tensors"], len(info["tensors"]))
            self.assertEqual(result["source"]["experts"], sum(bank["experts"] for bank in info["banks"]))

    def test_names_the_damaged_tensor(self):
        path = self.copy_of("tiny-k3")
        info = json.loads(self.output("info", path, "--tensors", "--json"))
        for tensor in (info["tensors"][0], info["tensors"][40], info["tensors"][-1]):
            flip(os.path.join(path, "trunk.bin"), tensor["offset"] + tensor["bytes"] - 1)
        result = self.verify(1, path)
        self.assertEqual([item["what"] for item in result["damage"]],
                         ["tensor " + info["tensors"][i]["name"] for i in (0, 40, -1)])
        code, out, _ = self.run_with("verify", path, "--quiet")
        self.assertEqual(code, 1)
        self.assertIn("tensor embed_tokens: ", out)
        self.assertIn("3 damaged", out)

    def test_names_the_damaged_expert(self):
        path = self.copy_of("tiny-k3")
        info = json.loads(self.output("info", path, "--experts", "--json"))
        bank = info["banks"][2]
        flip(os.path.join(path, bank["file"]), 5 * bank["record_bytes"] + 100)
        self.assertEqual([item["what"] for item in self.verify(1, path)["damage"]], ["layer 3 expert 5"])
        source = self.verify(1, path, "--source", self.sources["tiny-k3"], "--all")["source"]
        self.assertEqual([item["what"] for item in source["differences"]], ["layer 3 expert 5"])

    def test_every_other_byte_is_covered(self):
        """Padding, tables, manifest and carried files: wherever a byte changes, verify fails."""
        original = self.containers["demo-model"]
        for name in sorted(os.listdir(original)):
            path = self.copy_of("demo-model")
            size = os.path.getsize(os.path.join(path, name))
            for offset in (0, size // 2, size - 1):
                flip(os.path.join(path, name), offset)
                code, _, err = self.run_with("verify", path, "--quiet")
                self.assertEqual(code, 1, (name, offset, err))
                flip(os.path.join(path, name), offset)
            self.assertEqual(self.run_with("verify", path, "--quiet")[0], 0)
            shutil.rmtree(path)

    def test_truncated_and_missing_files(self):
        for name in ("trunk.bin", "experts-001.bin", "manifest.json", "tiktoken.model"):
            path = self.copy_of("demo-model")
            file = os.path.join(path, name)
            cut(file, 2)  # a manifest may lack its line end
            self.fail_with(1, re.escape(name), "verify", path, "--quiet")
            result = self.verify(1, path)
            self.assertFalse(result["ok"])
            self.assertIn(name, result["error"])
            os.remove(file)
            self.fail_with(1, re.escape(path), "verify", path, "--quiet")
            shutil.rmtree(path)
        self.fail_with(1, "no such directory", "verify", "/nonexistent")

    def test_source_samples_are_repeatable(self):
        path, source = self.containers["demo-model"], self.sources["demo-model"]
        first = self.verify(0, path, "--source", source)["source"]
        self.assertEqual(first, self.verify(0, path, "--source", source, "-j", 1)["source"])
        self.assertEqual((first["seed"], first["experts"]), (1, 8 * 2))
        self.assertIn(0, first["layers"], "the only dense layer is the only one of its kind")
        self.assertLess(first["tensors"], 235)
        more = self.verify(0, path, "--source", source, "--samples", 5)["source"]
        self.assertEqual(more["experts"], 8 * 5)
        seeds = {tuple(self.verify(0, path, "--source", source, "--samples", 1, "--seed", s)["source"]["layers"])
                 for s in range(6)}
        self.assertGreater(len(seeds), 1)
        self.assertIn("--seed 1", self.output("verify", path, "--source", source, "--quiet"))

    def test_source_that_changed_is_found(self):
        source = shutil.copytree(self.sources["demo-model"], self.path("release"))
        with open(os.path.join(source, "generation_config.json"), "a") as file:
            file.write("\n")
        flip(os.path.join(source, "model-00002-of-000003.safetensors"), -1)
        result = self.verify(1, self.containers["demo-model"], "--source", source, "--all")
        self.assertEqual(result["damage"], [])
        differences = [item["what"] for item in result["source"]["differences"]]
        self.assertEqual(differences[0], "file generation_config.json")
        self.assertEqual(len(differences), 2, differences)
        self.fail_with(1, "another release", "verify", self.containers["tiny-k3"], "--source",
                       self.sources["demo-model"], "--quiet")


class TokenizeTest(InspectTest):
    TEXT = "Hello, wörld! 你好。\n  tabs\tand <|end_of_msg|> 12345"

    def test_round_trip(self):
        for model in (self.containers["demo-model"], self.sources["demo-model"]):
            ids = self.output("tokenize", model, self.TEXT)
            self.assertRegex(ids, r"^\d+(,\d+)*\n$")
            self.assertEqual(self.output("tokenize", model, stdin=self.TEXT.encode()), ids)
            self.assertEqual(self.output("detokenize", model, ids.strip()), self.TEXT)
            self.assertEqual(self.output("detokenize", model, *ids.strip().split(",")), self.TEXT)
            self.assertEqual(self.output("detokenize", model, stdin=ids.encode()), self.TEXT)

    def test_files(self):
        model = self.containers["demo-model"]
        path = self.path("text")
        with open(path, "w") as file:
            file.write(self.TEXT + "\n")
        ids = self.output("tokenize", model, "--file", path)
        with open(path, "w") as file:
            file.write(ids.replace(",", "\n"))
        self.assertEqual(self.output("detokenize", model, "--ids", path), self.TEXT + "\n")
        self.fail_with(1, "/nonexistent: .*No such file", "tokenize", model, "--file", "/nonexistent")

    def test_text_never_becomes_markup(self):
        result = json.loads(self.output("tokenize", self.containers["demo-model"], "<|end_of_msg|>", "--json"))
        self.assertNotIn(5890, result["ids"])
        self.assertEqual(self.output("detokenize", self.containers["demo-model"], "5890"), "<|end_of_msg|>")

    def test_json_has_the_bytes(self):
        result = json.loads(self.output("tokenize", self.sources["demo-model"], self.TEXT, "--json"))
        self.assertEqual([token["id"] for token in result["tokens"]], result["ids"])
        joined = bytes.fromhex("".join(token["bytes"] for token in result["tokens"]))
        self.assertEqual(joined.decode(), self.TEXT)

    def test_edges(self):
        model = self.containers["demo-model"]
        self.assertEqual(self.output("tokenize", model, ""), "\n")
        self.assertEqual(self.output("detokenize", model, stdin=b"\n"), "")
        self.assertEqual(self.output("tokenize", model, "--", "-x"), self.output("tokenize", model, stdin=b"-x"))
        self.fail_with(1, "not UTF-8 at byte 2", "tokenize", model, stdin=b"ab\xff")
        self.fail_with(1, "vocabulary ends at 6143", "detokenize", model, "6144")
        for ids in ("7,x", "-1", "1.5", "99999999999"):
            self.fail_with(1, "token id", "detokenize", model, "7", ids)
        self.fail_with(1, "tiktoken.model", "tokenize", self.containers["tiny-k3"], "x")
        self.fail_with(1, "tiktoken.model", "tokenize", self.sources["tiny-k3"], "x")


if __name__ == "__main__":
    command_support.main(__name__)
