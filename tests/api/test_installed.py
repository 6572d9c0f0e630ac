#!/usr/bin/env python3
"""Installs what the build made, and builds the document's C program against it as a stranger would.

    test_installed.py BINARY SOURCE_DIR LIBRARY SNIPPETS BUILD_DIR C_COMPILER [TEST…]
"""
import glob
import os
import shutil
import sys
import unittest

import programs
from programs import PROMPT


class InstalledTest(programs.ProgramTest):
    snippets = build = compiler = None

    def setUp(self):
        super().setUp()
        self.prefix = self.path("prefix")
        for component in ("library", "command"):
            self.run_program("cmake", "--install", self.build, "--prefix", self.prefix, "--component", component)
        (pkgconfig,) = glob.glob(os.path.join(self.prefix, "lib*", "**", "pkgconfig"), recursive=True)
        self.libraries = os.path.dirname(pkgconfig)
        self.pkgconfig = dict(self.environment(), PKG_CONFIG_PATH=pkgconfig)

    def tell(self, program):
        environment = dict(self.environment(), LD_LIBRARY_PATH=self.libraries)
        return self.run_program(program, self.container, PROMPT, environment=environment).rstrip("\n")

    def test_what_is_installed(self):
        files = {os.path.relpath(os.path.join(folder, name), self.prefix)
                 for folder, _, names in os.walk(self.prefix) for name in names}
        names = {os.path.basename(name) for name in files}
        self.assertIn("include/waste.h", files)
        self.assertIn("bin/waste", files)
        self.assertLessEqual({"libwaste.so", "libwaste.so.0", "waste.pc", "wasteConfig.cmake"}, names)
        self.assertFalse([name for name in files if "fmt" in name or name.endswith(".a")])
        version = self.run_program(os.path.join(self.prefix, "bin", "waste"), "--version").split()[1]
        found = self.run_program("pkg-config", "--modversion", "waste", environment=self.pkgconfig).strip()
        self.assertEqual(found, version)

    def test_with_pkg_config(self):
        if shutil.which("pkg-config") is None:
            self.skipTest("no pkg-config")
        flags = self.run_program("pkg-config", "--cflags", "--libs", "waste", environment=self.pkgconfig).split()
        program = self.path("story")
        self.run_program(self.compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                         os.path.join(self.snippets, "story.c"), "-o", program, *flags)
        self.assertEqual(self.error, "")
        self.assertEqual(self.tell(program), self.story())

    def test_with_find_package(self):
        build = self.path("build")
        self.run_program("cmake", "-S", self.snippets, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                         f"-DCMAKE_C_COMPILER={self.compiler}")
        self.run_program("cmake", "--build", build)
        self.assertEqual(self.tell(os.path.join(build, "story")), self.story())


if __name__ == "__main__":
    InstalledTest.snippets, InstalledTest.build, InstalledTest.compiler = programs.set_up(sys.argv, 3)
    unittest.main(verbosity=2)
