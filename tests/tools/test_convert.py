#!/usr/bin/env python3
"""`waste convert` as a user meets it: killed, interrupted, out of space, given what it should refuse.

    test_convert.py BINARY SOURCE_DIR [TEST…]

Without TEST everything but Large runs; Large makes a checkpoint of more than 1 GiB.
"""
import base64
import json
import os
import random
import shutil
import signal
import sys
import time

import command_support
from command_support import (MIB, CommandTest, copy_model, cut, digests, file_system, flip, identities)
import make_checkpoint

JOURNAL = "convert.journal"
PARTIAL = ".partial"

K3_REQUIRED = [
    "model_type", "text_config", "text_config.vocab_size", "text_config.hidden_size",
    "text_config.num_hidden_layers", "text_config.rms_norm_eps", "text_config.max_position_embeddings",
    "text_config.intermediate_size", "text_config.num_attention_heads", "text_config.q_lora_rank",
    "text_config.kv_lora_rank", "text_config.qk_nope_head_dim", "text_config.qk_rope_head_dim",
    "text_config.v_head_dim", "text_config.mla_use_output_gate", "text_config.mla_use_nope",
    "text_config.hidden_act", "text_config.activation_situ_beta", "text_config.activation_situ_linear_beta",
    "text_config.num_experts", "text_config.num_experts_per_token", "text_config.num_shared_experts",
    "text_config.moe_intermediate_size", "text_config.first_k_dense_replace",
    "text_config.routed_expert_hidden_size", "text_config.latent_moe_use_norm", "text_config.moe_renormalize",
    "text_config.moe_router_activation_func", "text_config.routed_scaling_factor",
    "text_config.attn_res_block_size", "text_config.linear_attn_config",
    "text_config.linear_attn_config.kda_layers", "text_config.linear_attn_config.full_attn_layers",
    "text_config.linear_attn_config.num_heads", "text_config.linear_attn_config.head_dim",
    "text_config.linear_attn_config.short_conv_kernel_size",
    "text_config.linear_attn_config.gate_lower_bound", "text_config.linear_attn_config.use_full_rank_gate",
]


def delete_key(config, dotted):
    *parents, last = dotted.split(".")
    for parent in parents:
        config = config[parent]
    del config[last]


def is_final(name):
    return name != JOURNAL and not name.endswith(PARTIAL)


class ConvertTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.demo = self.model("demo-model")
        self.destination = self.path("out.waste")

    def journal_lines(self, directory):
        try:
            with open(os.path.join(directory, JOURNAL), "rb") as file:
                return file.read().count(b"\n")
        except FileNotFoundError:
            return 0

    def start_and_wait_for(self, lines, *arguments):
        """A conversion whose journal has that many lines; it may have ended meanwhile."""
        process = self.start("convert", "-q", *arguments)
        deadline = time.monotonic() + 120
        while process.poll() is None and self.journal_lines(arguments[1]) < lines:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        return process

    def leave_unfinished(self, lines=4, destination=None):
        destination = destination or self.destination
        for _ in range(10):
            process = self.start_and_wait_for(lines, self.demo, destination)
            process.kill()
            process.communicate()
            if os.path.exists(os.path.join(destination, JOURNAL)):
                return
            shutil.rmtree(destination)
        self.fail("the conversion always ended before it could be killed")


class Interrupted(ConvertTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        test = cls()
        test.setUp()
        cls.addClassCleanup(test.doCleanups)
        cls.reference = test.path("reference.waste")
        begin = time.monotonic()
        test.convert(test.demo, cls.reference)
        cls.seconds = time.monotonic() - begin
        cls.whole = digests(cls.reference)

    def expect_whole_files_only(self, directory):
        for name, digest in digests(directory).items():
            if is_final(name):
                self.assertEqual(digest, self.whole[name], f"{name} has its name and is not whole")

    def test_killed_at_any_moment_it_ends_with_the_same_bytes(self):
        moments = random.Random(20261129)
        kills = 0
        finished_files = {}
        for _ in range(60):
            process = self.start("convert", "-q", self.demo, self.destination)
            time.sleep(moments.uniform(0.02, 0.8) * self.seconds)
            process.kill()
            process.communicate()
            if process.returncode == 0:
                self.assertEqual(digests(self.destination), self.whole)
                shutil.rmtree(self.destination)
                finished_files = {}
                continue
            kills += 1
            if not os.path.isdir(self.destination):
                continue
            self.expect_whole_files_only(self.destination)
            now = identities(self.destination, is_final)
            for name, identity in finished_files.items():
                self.assertEqual(now.get(name), identity, f"{name} was finished and has been touched")
            # The newest may have got its name right before the kill, and its line in the journal not any more.
            newest = max(now, key=lambda name: now[name][1], default=None)
            finished_files = {name: identity for name, identity in now.items() if name != newest}
            if kills >= 6:
                break
        self.assertGreaterEqual(kills, 6)
        self.convert(self.demo, self.destination)
        self.assertEqual(digests(self.destination), self.whole)
        now = identities(self.destination)
        for name, identity in finished_files.items():
            self.assertEqual(now[name], identity, f"{name} was finished and has been touched")

    def test_ctrl_c_ends_with_130_and_one_line_and_goes_on_later(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start_and_wait_for(3, self.demo, self.destination)
            process.send_signal(number)
            _, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, error)
            self.assertEqual(error.count(b"\n"), 1, error)
            self.assertTrue(error.startswith(b"waste: " + self.destination.encode()), error)
            self.expect_whole_files_only(self.destination)
            before = self.journal_lines(self.destination)
            self.assertGreaterEqual(before, 3)
            self.convert(self.demo, self.destination)
            self.assertEqual(digests(self.destination), self.whole)
            shutil.rmtree(self.destination)

    def test_resuming_writes_only_what_is_missing(self):
        self.leave_unfinished(lines=14)  # the trunk and some banks
        finished = identities(self.destination, lambda name: name.startswith("experts") and is_final(name))
        self.assertTrue(finished)
        self.convert(self.demo, self.destination)
        self.assertEqual({name: identity for name, identity in identities(self.destination).items()
                          if name in finished}, finished)
        self.assertEqual(digests(self.destination), self.whole)

    def test_a_torn_journal_line_costs_a_layer_not_the_container(self):
        self.leave_unfinished(lines=6)
        journal = os.path.join(self.destination, JOURNAL)
        os.truncate(journal, os.path.getsize(journal) - 5)
        self.convert(self.demo, self.destination)
        self.assertEqual(digests(self.destination), self.whole)

    def test_a_lost_partial_file_is_made_again(self):
        self.leave_unfinished(lines=6)
        os.unlink(os.path.join(self.destination, "trunk.bin" + PARTIAL))
        self.convert(self.demo, self.destination)
        self.assertEqual(digests(self.destination), self.whole)

    def test_a_journal_left_by_the_last_step_is_removed(self):
        self.convert(self.demo, self.destination)
        with open(os.path.join(self.destination, JOURNAL), "w", encoding="utf-8") as file:
            file.write("left behind\n")
        self.convert(self.demo, self.destination)
        self.assertEqual(digests(self.destination), self.whole)

    def test_bytes_do_not_depend_on_the_threads(self):
        for threads in (1, 2, 7):
            destination = self.path(f"{threads}.waste")
            self.convert(self.demo, destination, "-j", str(threads))
            self.assertEqual(digests(destination), self.whole, f"{threads} threads")

    def test_converting_again_touches_nothing(self):
        self.convert(self.demo, self.destination)
        before = identities(self.destination)
        _, error = self.succeed("convert", self.demo, self.destination)
        self.assertIn("nothing to do", error)
        self.assertEqual(identities(self.destination), before)

    def test_other_options_are_refused_on_a_finished_container(self):
        self.convert(self.demo, self.destination)
        before = identities(self.destination)
        other = copy_model(self.demo, self.path("other"), config=lambda c: c.update(pad_token_id=1))
        less = copy_model(self.demo, self.path("less"))
        os.unlink(os.path.join(less, "generation_config.json"))
        for source, options in ((self.demo, ("--trunk", "q8")), (self.demo, ("--experts", "q4")),
                                (other, ()), (less, ())):
            self.refuse(("convert", "-q", source, self.destination, *options), self.destination, "finished")
        self.assertEqual(identities(self.destination), before)

    def test_a_fine_tune_is_refused_on_its_bases_container(self):
        """The same config.json and tokenizer, one weight of one norm another."""
        changed = "language_model.model.layers.2.input_layernorm.weight"
        seen = []

        def tune(tensors):
            if changed in tensors:
                dtype, shape, data = tensors[changed]
                tensors[changed] = (dtype, shape, data[:6] + bytes([data[6] ^ 1]) + data[7:])
                seen.append(changed)

        tuned = copy_model(self.demo, self.path("tuned"), tensors=tune)
        self.assertEqual(seen, [changed])
        self.convert(self.demo, self.destination)
        before = identities(self.destination)
        self.refuse(("convert", "-q", tuned, self.destination), self.destination,
                    "finished container of another model")
        self.assertEqual(identities(self.destination), before)
        self.assertEqual(digests(self.destination), self.whole)

    def test_other_options_are_refused_on_an_unfinished_container(self):
        self.leave_unfinished()
        before = digests(self.destination)
        for source, options in ((self.demo, ("--trunk", "q8")), (self.demo, ("--experts", "q4")),
                                (self.model("tiny-k3"), ())):
            self.refuse(("convert", "-q", source, self.destination, *options), self.destination, "unfinished")
        self.assertEqual(digests(self.destination), before)
        self.convert(self.demo, self.destination)
        self.assertEqual(digests(self.destination), self.whole)

    def test_a_drive_that_fills_up_half_way(self):
        size = sum(os.path.getsize(os.path.join(self.reference, name)) for name in self.whole)
        with file_system(self.directory, f"size={size + 18 * MIB}") as place:
            destination = os.path.join(place, "out.waste")
            for _ in range(10):
                process = self.start_and_wait_for(5, self.demo, destination)
                process.send_signal(signal.SIGSTOP)
                if process.poll() is None and os.path.exists(os.path.join(destination, JOURNAL)):
                    break
                process.communicate()
                shutil.rmtree(destination, ignore_errors=True)
            else:
                self.fail("the conversion always ended before it could be stopped")
            filler = os.path.join(place, "filler")
            with self.assertRaises(OSError), open(filler, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(64 * 1024))
            process.send_signal(signal.SIGCONT)
            _, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1, error)
            self.assertEqual(error.count(b"\n"), 1, error)
            self.assertIn(b"waste: " + destination.encode(), error)
            self.expect_whole_files_only(destination)
            os.unlink(filler)
            # Now the space that is left is just enough, and part of the container is there already.
            self.convert(self.demo, destination)
            self.assertEqual(digests(destination), self.whole)


class Destinations(ConvertTest):
    def test_a_foreign_folder_is_refused(self):
        os.makedirs(self.destination)
        with open(os.path.join(self.destination, "holiday.txt"), "w", encoding="utf-8") as file:
            file.write("mine")
        before = identities(self.destination)
        self.refuse(("convert", "-q", self.demo, self.destination), self.destination, "not empty")
        self.assertEqual(identities(self.destination), before)

    def test_the_release_itself_is_refused(self):
        source = copy_model(self.demo, self.path("release"))
        before = identities(source)
        self.refuse(("convert", "-q", source, source), source)
        self.assertEqual(identities(source), before)

    def test_an_empty_folder_and_a_trailing_slash_are_fine(self):
        os.makedirs(self.destination)
        self.convert(self.model("odd-k3"), self.destination + "/")
        self.assertIn("manifest.json", os.listdir(self.destination))

    def test_a_file_is_refused(self):
        with open(self.destination, "w", encoding="utf-8") as file:
            file.write("mine")
        self.refuse(("convert", "-q", self.demo, self.destination), self.destination)
        with open(self.destination, encoding="utf-8") as file:
            self.assertEqual(file.read(), "mine")

    def test_a_missing_parent_is_refused(self):
        destination = self.path("no", "such", "place")
        self.refuse(("convert", "-q", self.demo, destination), destination)
        self.assertFalse(os.path.exists(self.path("no")))

    def test_too_little_space_is_refused_before_it_starts(self):
        with file_system(self.directory, "size=20m") as place:
            destination = os.path.join(place, "out.waste")
            self.refuse(("convert", "-q", self.demo, destination), destination, "free")
            self.assertEqual(os.listdir(place), [])

    def test_a_read_only_place_is_refused(self):
        with file_system(self.directory, "ro") as place:
            self.refuse(("convert", "-q", self.demo, os.path.join(place, "out.waste")), place)


class Sources(ConvertTest):
    def test_a_release_is_all_it_takes(self):
        """A01, A02: no helper script, no Python, no PATH."""
        source = self.path("release")
        os.makedirs(source)
        for name in os.listdir(self.demo):
            if name.endswith(".safetensors") or name in ("config.json", "tiktoken.model",
                                                         "tokenizer_config.json",
                                                         "model.safetensors.index.json"):
                os.symlink(os.path.join(self.demo, name), os.path.join(source, name))
        self.convert(source, self.destination, env={"PATH": ""})
        out, _ = self.succeed("run", "-q", self.destination, "Once upon a time", "-n", "4", env={"PATH": ""})
        self.assertTrue(out.strip())

    def test_no_tokenizer_is_worth_a_note(self):
        _, error = self.succeed("convert", self.model("odd-k3"), self.destination)
        self.assertIn("no tiktoken.model", error)
        ids = self.path("ids")
        with open(ids, "w", encoding="utf-8") as file:
            file.write("1, 2, 3")
        out, _ = self.succeed("run", "-q", self.destination, "--ids", ids, "-n", "3")
        self.assertEqual(len(out.split(",")), 3, out)

    def test_each_k3_key_is_required(self):
        """A03."""
        for key in K3_REQUIRED:
            source = self.path("k3-" + key)
            copy_model(self.model("tiny-k3"), source, config=lambda c, k=key: delete_key(c, k))
            with self.subTest(key):
                self.refuse_convert(source, os.path.join(source, "config.json"), key, "missing")

    def test_a_log_in_four_forms(self):
        """A04: per head, whatever its shape; padding must be zero."""
        def reshaped(shape, padding):
            def change(tensors):
                for name, (dtype, _, data) in tensors.items():
                    if name.endswith(".A_log"):
                        self.assertEqual(dtype, "F32")
                        tensors[name] = (dtype, shape, data[:8] + padding * ((shape[-1] - 2) * 4))
            return change

        results = []
        for form, shape in (("flat", [2]), ("padded", [128])):
            source = copy_model(self.model("tiny-k3"), self.path(form), tensors=reshaped(shape, b"\0"))
            self.convert(source, self.path(form + ".waste"))
            results.append(digests(self.path(form + ".waste")))

        def four_dimensions(tensors):
            reshaped([2], b"")(tensors)
            for name, (dtype, _, data) in tensors.items():
                if name.endswith(".A_log"):
                    tensors[name] = (dtype, [1, 1, 2, 1], data)
        source = copy_model(self.model("tiny-k3"), self.path("four"), tensors=four_dimensions)
        self.convert(source, self.path("four.waste"))
        results.append(digests(self.path("four.waste")))
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

        source = copy_model(self.model("tiny-k3"), self.path("filled"), tensors=reshaped([128], b"\x01"))
        self.refuse_convert(source, source, "A_log", "zero")
        source = copy_model(self.model("tiny-k3"), self.path("short"), tensors=reshaped([3], b"\0"))
        self.refuse_convert(source, source, "A_log", "[3]")

    def test_deepseek_spelling_is_refused_before_writing(self):
        """A06."""
        def config(content):
            content["text_config"]["n_routed_experts"] = content["text_config"].pop("num_experts")

        def tensors(content):
            spelling = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
            for name in list(content):
                if ".experts." in name:
                    head, which, tail = name.replace("block_sparse_moe", "mlp").rsplit(".", 2)
                    content[f"{head}.{spelling[which]}.{tail}"] = content.pop(name)

        source = copy_model(self.model("tiny-k3"), self.path("both"), config, tensors)
        self.refuse_convert(source, "num_experts", "missing")
        source = copy_model(self.model("tiny-k3"), self.path("names"), tensors=tensors)
        self.refuse_convert(source, source, "block_sparse_moe.experts.0.w1")

    def test_a_cut_shard_is_named_with_the_missing_bytes(self):
        """A09, the release's side."""
        source = copy_model(self.demo, self.path("cut"))
        cut(os.path.join(source, "model-00002-of-000003.safetensors"), MIB)
        self.refuse_convert(source, "model-00002-of-000003.safetensors", "1048576 bytes are missing")

    def test_a_cut_container_file_is_named_with_the_missing_bytes(self):
        """A09, the container's side."""
        whole = self.path("whole.waste")
        self.convert(self.demo, whole)
        for name in ("trunk.bin", "experts-003.bin"):
            damaged = self.path("damaged.waste")
            shutil.copytree(whole, damaged)
            cut(os.path.join(damaged, name), MIB)
            for arguments in (("info", damaged), ("plan", damaged), ("verify", damaged),
                              ("run", damaged, "Hello", "-n", "1"), ("convert", "-q", self.demo, damaged)):
                with self.subTest(f"{arguments[0]} {name}"):
                    line = self.refuse(arguments, name, "1048576")
                    self.assertIn("missing", line)
            shutil.rmtree(damaged)

    def test_unsupported_architectures_are_called_unsupported(self):
        """A11."""
        for name in ("llama", "deepseek_v3", "qwen3_moe"):
            source = copy_model(self.model("odd-k3"), self.path(name),
                                config=lambda c, n=name: c.update(model_type=n))
            line = self.refuse_convert(source, name, "not supported")
            for word in ("corrupt", "truncat", "damage", "missing"):
                self.assertNotIn(word, line)

    def test_the_vocabulary_may_be_smaller_than_the_embedding_not_larger(self):
        """A12."""
        for rows, ranks, fits in ((260, 258, True), (258, 258, True), (256, 258, False)):
            source = self.path(f"rows-{rows}")
            make_checkpoint.write_checkpoint(source, make_checkpoint.k3_config(vocab_size=rows))
            tokens = [bytes([b]) for b in range(256)] + [b"ab", b"cd"]
            with open(os.path.join(source, "tiktoken.model"), "w", encoding="ascii") as file:
                for rank, token in enumerate(tokens[:ranks]):
                    file.write(f"{base64.b64encode(token).decode()} {rank}\n")
            with self.subTest(f"{ranks} tokens, {rows} rows"):
                if fits:
                    self.convert(source, self.path(f"rows-{rows}.waste"))
                else:
                    self.refuse_convert(source, "tiktoken.model", "256 rows")

    def test_special_tokens_beyond_the_embedding_are_noted(self):
        """A12 again: added tokens without a row are left out, and the user is told."""
        def add_two(path):
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            for i in range(2):
                content["added_tokens_decoder"][str(6144 + i)] = {"content": f"<|beyond_{i}|>", "special": True}
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)

        source = copy_model(self.demo, self.path("beyond"))
        add_two(os.path.join(source, "tokenizer_config.json"))
        _, error = self.succeed("convert", source, self.destination)
        self.assertIn("<|beyond_0|>", error)
        self.assertIn("2 ids in all", error)

    def test_a_conversion_can_be_proven(self):
        """A16."""
        source = self.model("odd-k3")
        self.convert(source, self.destination)
        self.succeed("verify", self.destination, "--source", source, "--all")
        changed = "language_model.model.layers.2.block_sparse_moe.experts.7.w2.weight_packed"

        def change(tensors):
            dtype, shape, data = tensors[changed]
            tensors[changed] = (dtype, shape, data[:500] + bytes([data[500] ^ 1]) + data[501:])
        other = copy_model(source, self.path("other"), tensors=change)
        code, out, error = self.run_command("verify", self.destination, "--source", other, "--all")
        self.assertEqual(code, 1, out + error)
        self.assertIn("layer 2 expert 7", out + error)
        flip(os.path.join(self.destination, "experts-002.bin"), 5000)
        code, out, error = self.run_command("verify", self.destination)
        self.assertEqual(code, 1, out + error)
        self.assertIn("layer 2 expert 0", out + error)


class Large(ConvertTest):
    """A checkpoint of more than 1 GiB, with experts of K3's own size."""

    def test_memory_stays_small(self):
        needed = 3 << 30
        free = shutil.disk_usage(self.directory).free
        if free < needed:
            self.skipTest(f"needs {needed >> 20} MiB of disk, {free >> 20} MiB are free")
        source = self.path("large")
        make_checkpoint.write_checkpoint(source, make_checkpoint.config_of_size("k3", (1 << 30) + 64 * MIB),
                                         shards=3)
        size = sum(os.path.getsize(os.path.join(source, name)) for name in os.listdir(source))
        self.assertGreaterEqual(size, 1 << 30)
        for threads in ("2", "16"):
            process = self.start("convert", "-q", source, self.destination, "-j", threads)
            peak = 0
            while process.poll() is None:
                peak = max(peak, self.anonymous_bytes(process.pid))
                time.sleep(0.002)
            _, error = process.communicate()
            self.assertEqual(process.returncode, 0, error)
            print(f"{size >> 20} MiB with {threads} threads: {peak >> 20} MiB of anonymous memory at most")
            self.assertGreater(peak, 0)
            self.assertLess(peak, 256 * MIB)
            self.succeed("verify", "-q", self.destination)
            shutil.rmtree(self.destination)

    @staticmethod
    def anonymous_bytes(pid):
        try:
            with open(f"/proc/{pid}/status", encoding="ascii") as file:
                for line in file:
                    if line.startswith("RssAnon:"):
                        return int(line.split()[1]) * 1024
        except (FileNotFoundError, ProcessLookupError):
            pass
        return 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.argv += ["Interrupted", "Destinations", "Sources"]
    command_support.main("__main__")
