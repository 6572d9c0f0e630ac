#!/usr/bin/env python3
"""Sessions as a user meets them: going on as if never stopped, going back, refusals, files that survive being killed and
full drives, prompts that are not read twice.

    test_session.py BINARY SOURCE_DIR [TEST…]
"""
import contextlib
import json
import os
import random
import signal
import time

import command_support
from command_support import CommandTest, cut, flip

KILLS = 200


def endless(config):
    """Without a token that ends a text, generation lasts as long as a test wants."""
    config["eos_token_id"] = []
    if "text_config" in config:
        config["text_config"]["eos_token_id"] = []


class SessionBase(CommandTest):
    source = "tiny-k3"

    def setUp(self):
        super().setUp()
        self.container = self.path("model.waste")
        self.release = command_support.copy_model(self.model(self.source), self.path("release"), config=endless)
        self.convert(self.release, self.container)
        self.file = self.path("a.session")
        self.ids = self.prompt_file(100)

    def prompt_file(self, count, name="prompt.ids", start=7):
        path = self.path(name)
        with open(path, "w", encoding="ascii") as file:
            file.write(",".join(str((start + 61 * i) % 500) for i in range(count)))
        return path

    def generate(self, count, *options, ids=None):
        prompt = ("--ids", ids) if ids else ()
        out, _ = self.succeed("run", self.container, *prompt, "-n", str(count), "--json", "-q", "--threads", "2",
                              "--seed", "4", *options)
        return json.loads(out)

    def info(self, path=None):
        return json.loads(self.succeed("session", "info", path or self.file, "--json")[0])

    def content(self):
        with open(self.file, "rb") as file:
            return file.read()

    def verify(self, path=None):
        return self.succeed("session", "verify", path or self.file)


class SessionTest(SessionBase):
    def test_goes_on_as_if_never_stopped(self):
        whole = self.generate(30, ids=self.ids)
        first = self.generate(10, "--session", self.file, ids=self.ids)
        self.assertEqual(first["prompt_tokens"], 100)
        out, _ = self.succeed("run", self.container, "--session", self.file, "-n", "20", "--json", "-q", "--threads", "1")
        second = json.loads(out)
        self.assertEqual(first["ids"] + second["ids"], whole["ids"])
        self.assertEqual((second["prompt_tokens"], second["reused_tokens"]), (0, 110))
        self.assertEqual(second["seed"], 4, "the seed is the session's")
        self.assertEqual(self.info()["position"], 130)

    def test_a_longer_prompt_reads_only_what_is_new(self):
        self.generate(5, "--session", self.file, ids=self.ids)
        everything = self.path("more.ids")
        with open(everything, "w", encoding="ascii") as file:
            known = json.loads(self.succeed("session", "export", self.file)[0])["ids"]
            file.write(",".join(map(str, known + [1, 2, 3])))
        again = self.generate(5, "--session", self.file, ids=everything)
        self.assertEqual((again["prompt_tokens"], again["reused_tokens"]), (3, 105))

    def test_another_prompt_needs_a_word(self):
        self.generate(5, "--session", self.file, ids=self.ids)
        before = self.content()
        other = self.prompt_file(90, "other.ids")
        self.refuse(("run", self.container, "--ids", other, "--session", self.file), "a.session", "--rewind", "90")
        self.assertEqual(self.content(), before)
        fresh = self.generate(12, ids=other)
        back = self.generate(12, "--session", self.file, "--rewind", ids=other)
        self.assertEqual(len(back["ids"]), 12)
        self.assertEqual(self.info()["position"], 102)
        # Ninety tokens in one feed or as the beginning of a hundred: the same but for rounding, greedily the same text.
        self.assertEqual(fresh["prompt_tokens"], 90)

    def test_files_that_do_not_fit_are_refused_by_name(self):
        self.generate(3, "--session", self.file, ids=self.ids)
        other = self.path("other.waste")
        self.convert(self.release, other, "--trunk", "q8")
        self.refuse(("run", other, "--session", self.file, "-n", "1"), "a.session", "another model", self.container)
        self.refuse(("run", self.container, "--session", self.file, "-n", "1", "--ctx", "50"), "context")
        text = self.path("diary.txt")
        with open(text, "w", encoding="ascii") as file:
            file.write("Dear diary, " * 1000)
        for command in (("session", "info", text), ("session", "verify", text), ("session", "export", text),
                        ("run", self.container, "--session", text, "-n", "1")):
            self.refuse(command, "diary.txt", "is not a session file")
        self.refuse(("session", "info", self.path("none")), "none")
        good = self.content()
        size = os.path.getsize(self.file)
        for at in (3, 20, 4096 + 10, size // 2, size - 5):
            flip(self.file, at)
            self.refuse(("session", "verify", self.file), "a.session")
            flip(self.file, at)
        self.assertEqual(self.content(), good)
        cut(self.file, 1)
        self.refuse(("run", self.container, "--session", self.file, "-n", "1"), "a.session", "damaged")

    def test_says_what_it_holds(self):
        self.generate(5, "--session", self.file, ids=self.ids)
        info = self.info()
        self.assertEqual(info["position"], 105)
        self.assertEqual([turn["role"] for turn in info["turns"]], ["user", "assistant"])
        self.assertEqual(info["turns"][1]["begin"], 100)
        self.assertEqual(info["bytes"], os.path.getsize(self.file))
        text, _ = self.succeed("session", "info", self.file)
        self.assertIn("105 in 2 turns", text)
        exported = json.loads(self.succeed("session", "export", self.file)[0])
        self.assertEqual(len(exported["ids"]), 105)

    def test_bf16_takes_less(self):
        self.generate(5, "--session", self.file, ids=self.ids)
        small = self.path("small.session")
        self.generate(5, "--session", small, "--session-state", "bf16", "--session-latents", "bf16", ids=self.ids)
        self.assertLess(os.path.getsize(small), 0.7 * os.path.getsize(self.file))
        self.assertEqual(self.info(small)["sections"]["states"]["format"], "bf16")
        self.generate(5, "--session", small)

    def test_a_broken_pipe_or_control_c_saves_too(self):
        with self.start("run", self.container, "--ids", self.ids, "-n", "3000", "--session", self.file, "-q", "--ctx",
                        "4000") as process:
            process.stdout.read(50)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.verify()
        self.assertGreater(self.info()["position"], 100)

    def test_saves_every_so_often(self):
        with self.start("run", self.container, "--ids", self.ids, "-n", "3000", "--session", self.file, "--save-every",
                        "20", "-q", "--ctx", "4000") as process:
            deadline = time.monotonic() + 60
            while not os.path.exists(self.file) and time.monotonic() < deadline:
                time.sleep(0.01)
            process.kill()
            process.communicate()
        self.verify()
        self.generate(5, "--session", self.file)

    def test_a_full_or_read_only_drive_keeps_the_old_file(self):
        with command_support.file_system(self.directory, "size=8M") as mount_point:
            file = os.path.join(mount_point, "a.session")
            self.generate(3, "--session", file, ids=self.ids)
            before = command_support.digests(mount_point)["a.session"]
            with contextlib.suppress(OSError), open(os.path.join(mount_point, "ballast"), "wb", buffering=0) as ballast:
                while True:
                    ballast.write(bytes(4096))
            code, _, error = self.run_command("run", self.container, "-n", "3", "--session", file, "-q")
            self.assertEqual(code, 1)
            self.assertIn("a.session", error)
            self.assertIn("space", error)
            self.assertEqual(sorted(os.listdir(mount_point)), ["a.session", "ballast"])
            self.assertEqual(command_support.digests(mount_point)["a.session"], before)
            os.unlink(os.path.join(mount_point, "ballast"))
            self.generate(3, "--session", file)

    def test_keeps_files_that_are_not_its_own(self):
        self.generate(3, "--session", self.file, ids=self.ids)
        with self.start("run", self.container, "-n", "3000", "--session", self.file, "--ctx", "4000", "-q") as process:
            process.stdout.read(50)  # it has loaded the file
            self.generate(2, "--session", self.file)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=60)
        self.assertIn(b"another program saved it", error)
        self.assertEqual(self.info()["position"], 105)

    def test_prompts_are_not_read_twice(self):
        cache = self.path("prompts")
        long = self.prompt_file(300, "long.ids")
        plain = self.generate(10, ids=long)
        first = self.generate(10, "--prompt-cache", cache, ids=long)
        second = self.generate(10, "--prompt-cache", cache, ids=long)
        self.assertEqual((first["reused_tokens"], first["prompt_tokens"]), (0, 300))
        self.assertEqual((second["reused_tokens"], second["prompt_tokens"]), (256, 44))
        self.assertEqual(plain["ids"], first["ids"])
        self.assertEqual(plain["ids"], second["ids"])
        third = self.generate(10, "--prompt-cache", cache, "--session", self.file, ids=long)
        self.assertEqual(third["ids"], plain["ids"])
        self.assertEqual(self.info()["position"], 310)
        self.generate(1, "--prompt-cache", cache, "--prompt-cache-size", "1K", ids=self.prompt_file(200, "b.ids", 3))
        self.assertEqual(os.listdir(cache), [])

    def test_options_that_make_no_sense(self):
        self.refuse(("run", self.container, "--ids", self.ids, "--save-every", "5"), "--session", code=2)
        self.refuse(("run", self.container, "--ids", self.ids, "--rewind"), "--session", code=2)
        self.refuse(("run", self.container, "--ids", self.ids, "--session", self.directory), self.directory)
        nowhere = self.path("no", "such.session")
        self.refuse(("run", self.container, "--ids", self.ids, "--session", nowhere), nowhere, "No such file")
        self.refuse(("run", self.container, "--ids", self.ids, "--prompt-cache", self.path("a", "b")), "b")
        self.refuse(("session",), code=2)


class KimiLinearSessionTest(SessionTest):
    source = "tiny-kimi-linear"


class KillTest(SessionBase):
    def test_killed_while_saving_leaves_a_whole_session(self):
        """kill -9 at moments all over a run that saves after every token."""
        self.generate(1, "--session", self.file, ids=self.ids)
        chance = random.Random(1)
        positions = set()
        for _ in range(KILLS):
            with self.start("run", self.container, "-n", "2000", "--session", self.file, "--save-every", "1", "-q",
                            "--ctx", "4000", "--threads", "1", stderr=command_support.subprocess.DEVNULL) as process:
                time.sleep(0.02 + 0.08 * chance.random())
                process.kill()
                process.communicate()
            self.verify()
            positions.add(self.info()["position"])
            if max(positions) > 3000:
                os.unlink(self.file)
                self.generate(1, "--session", self.file, ids=self.ids)
        self.assertGreater(len(positions), KILLS // 4, "the kills hit runs that had saved")


if __name__ == "__main__":
    command_support.main(__name__)
