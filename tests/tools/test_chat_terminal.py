#!/usr/bin/env python3
"""`waste chat` on a terminal, typed at through tmux: line editing, history, edit, undo, Ctrl-C, Ctrl-D, resume.

    test_chat_terminal.py BINARY SOURCE_DIR [TEST…]
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import command_support
from command_support import CommandTest

LILY = "Tell me a story about Lily."
COLUMNS, ROWS = 120, 40
WAIT_S = 200

if not shutil.which("tmux"):
    print("skipped: tmux is missing (tools/setup installs it)")
    sys.exit(77)


class TerminalTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.container = self.path("demo.waste")
        self.convert(self.model("demo-model"), self.container)
        self.session = self.path("talk.session")
        self.socket = None

    def tmux(self, *arguments, check=True):
        environment = dict(os.environ, XDG_CACHE_HOME=self.path("cache"), LC_ALL="C.UTF-8")
        environment.pop("TMUX", None)
        return subprocess.run(["tmux", "-u", "-f", os.devnull, "-S", self.socket, *arguments], check=check,
                              capture_output=True, text=True, env=environment).stdout

    def open_chat(self, *options):
        """In a terminal of its own."""
        self.socket = self.path(f"tmux-{time.monotonic_ns()}")
        self.addCleanup(subprocess.run, ["tmux", "-S", self.socket, "kill-server"], check=False, capture_output=True)
        command = [self.binary, "chat", self.container, "--no-think", "--temp", "0", "--session", self.session, "-t",
                   "2", *options]
        self.tmux("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS),
                  shlex.join(command) + "; echo left with $?; sleep 600")
        self.wait_for(r"^> ?$")

    def screen(self):
        return self.tmux("capture-pane", "-p", "-S", "-")

    def wait_for(self, pattern, count=1):
        """Until the screen matches so often; the screen."""
        end = time.monotonic() + WAIT_S
        while True:
            screen = self.screen()
            if len(re.findall(pattern, screen, re.MULTILINE)) >= count:
                return screen
            if time.monotonic() > end:
                self.fail(f"{pattern!r} did not appear {count} times:\n{screen}")
            time.sleep(0.05)

    def type(self, *keys):
        self.tmux("send-keys", *keys)

    def say(self, text):
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def test_a_conversation(self):
        self.open_chat("-n", "8")
        # A line put together with the cursor keys; history brings it back.
        self.tmux("send-keys", "-l", "ell me a story about Lily?")
        self.type("BSpace", ".", "C-a", "T", "Enter")
        screen = self.wait_for(r"generated 8 tokens")
        self.assertIn("> " + LILY, screen)
        self.assertIn("Once upon a time", screen)
        self.assertIn("read 44 tokens", screen)
        self.type("Up", "Enter")
        self.wait_for(r"generated 8 tokens", 2)
        self.assertEqual(len(re.findall("> " + LILY, self.screen())), 2)
        self.say("/undo")
        self.wait_for("took back: " + LILY)

        # The message stands there to be changed.
        self.say("/edit")
        self.wait_for("^> " + LILY + "$", 3)
        for _ in range(len("Lily.")):
            self.type("BSpace")
        self.say("Tom né Ü.")
        screen = self.wait_for(r"generated 8 tokens", 3)
        self.assertIn("> Tell me a story about Tom né Ü.", screen)
        self.say("/stats")
        self.wait_for(r"conversation\s+1 message, ")

        # Ctrl-C at the prompt drops the line and nothing else; Ctrl-D leaves.
        self.tmux("send-keys", "-l", "never sent")
        self.type("C-c")
        self.wait_for("Ctrl-D leaves")
        self.say("/stats")
        self.wait_for(r"conversation\s+1 message, ", 2)
        self.type("C-d")
        self.wait_for("left with 0")

        # Resumed: what was said is in the history, and can be edited.
        self.open_chat("-n", "8")
        screen = self.wait_for(r"^> ?$")
        self.assertIn("resumed", screen)
        self.assertIn("1 message, ", screen)
        self.assertIn("the last: Tell me a story about Tom né Ü.", screen)
        self.type("Up")
        self.wait_for("^> Tell me a story about Tom né Ü.$")

    def test_messages_of_many_lines_are_edited_line_by_line(self):
        self.open_chat("-n", "4")
        self.say('"""')
        self.say("One.")
        self.say("/two")
        self.say('three."""')
        self.wait_for("generated 4 tokens")
        self.say("/edit")
        self.wait_for('^> """$', 2)
        self.type("Enter")
        self.wait_for(r"^\. One\.$", 2)
        self.type("Enter")
        self.wait_for(r"^\. /two$", 2)
        self.type("Enter")
        self.wait_for(r"^\. three\.$")
        self.type("Enter")
        self.wait_for(r'^\. """$')
        self.type("Enter")
        self.wait_for("generated 4 tokens", 2)
        screen = self.screen()
        costs = re.findall(r"read (\d+) tokens", screen)
        self.assertEqual(costs[0], costs[1], screen)

    def test_an_answer_is_stopped_and_the_conversation_goes_on(self):
        self.open_chat("--tier", "scalar", "--compute", "f32", "--ctx", "4096")
        self.say(LILY)
        self.wait_for("Once upon a")
        self.type("C-c")
        self.wait_for("ended by interrupted")
        self.say("/set n 4")
        self.say("And then?")
        self.wait_for("generated 4 tokens.*ended by length")
        self.say("/stats")
        self.wait_for("2 messages, ")
        self.say("/quit")
        self.wait_for("left with 0")


if __name__ == "__main__":
    command_support.main(__name__)
