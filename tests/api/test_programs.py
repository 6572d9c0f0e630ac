#!/usr/bin/env python3
"""Programs in C and C++ that use the engine, and what the shared library shows of itself.

    test_programs.py BINARY SOURCE_DIR LIBRARY C_PROGRAM STORY_C STORY_CPP [TEST…]
"""
import subprocess
import sys
import unittest

import programs
from programs import PROMPT


class ProgramsTest(programs.ProgramTest):
    c_program = story_c = story_cpp = None

    def test_every_function_from_c(self):
        self.assertEqual(self.run_program(self.c_program, self.container, self.directory), "")
        self.assertEqual(self.error, "")

    def test_stories_of_the_document(self):
        story = self.story()
        self.assertGreater(len(story), 20)
        self.assertEqual(self.run_program(self.story_c, self.container, PROMPT).rstrip("\n"), story)
        self.assertEqual(self.run_program(self.story_cpp, self.container, PROMPT).rstrip("\n"), story)

    def test_a_story_without_a_model(self):
        self.run_program(self.story_c, self.path("nothing"), PROMPT, code=1)
        self.assertIn("open: not_found: ", self.error)

    def test_nothing_else_is_exported(self):
        table = subprocess.run(["nm", "-D", "--defined-only", self.library], capture_output=True, text=True,
                               check=True).stdout
        names = {line.split()[-1] for line in table.splitlines()}
        self.assertGreater(len(names), 20)
        self.assertEqual({name for name in names if not name.startswith("waste_")}, set())
        with open(self.path(self.data, "..", "..", "engine", "waste.h"), encoding="utf-8") as header:
            text = header.read()
        self.assertEqual({name for name in names if f" {name}(" not in text and f"*{name}(" not in text}, set())


if __name__ == "__main__":
    ProgramsTest.c_program, ProgramsTest.story_c, ProgramsTest.story_cpp = programs.set_up(sys.argv, 3)
    unittest.main(verbosity=2)
