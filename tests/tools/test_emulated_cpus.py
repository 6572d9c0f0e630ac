#!/usr/bin/env python3
"""One binary on CPUs that this machine is not: under qemu-user, from one without AVX to one with AVX2, the command runs
on the best tier there is, writes the same tokens, and refuses by name what the CPU cannot.

    test_emulated_cpus.py BINARY SOURCE_DIR [TEST…]

qemu-user emulates AVX2 and nothing above it, so wider CPUs are seen as AVX2 here.
"""
import platform
import shutil
import unittest

import command_support
from command_support import CommandTest

QEMU = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")

# The model's name for qemu, and the tier that is to be chosen.
CPUS = (("Nehalem", "scalar"), ("SandyBridge", "scalar"), ("Haswell", "avx2"), ("Skylake-Server", "avx2"),
        ("EPYC", "avx2"))


@unittest.skipIf(platform.machine() != "x86_64", "the binary is not for x86-64")
@unittest.skipIf(QEMU is None, "qemu-x86_64 is not installed")
class EmulatedCpuTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.container = self.path("tiny.waste")
        self.convert(self.model("tiny-k3"), self.container)
        ids = self.path("prompt.ids")
        with open(ids, "w", encoding="ascii") as file:
            file.write(",".join(str(3 + 5 * i) for i in range(70)))  # a chunk of KDA and some
        self.usual = ("run", self.container, "--ids", ids, "-n", "4", "--temp", "0", "-v", "--threads", "1")
        self.native, _ = self.succeed(*self.usual)
        self.assertGreater(len(self.native.strip()), 6)

    def emulated(self, cpu, *arguments):
        """As run_command(), on that CPU."""
        real = self.binary
        try:
            CommandTest.binary = QEMU
            return self.run_command("-cpu", cpu, real, *arguments, timeout=300)
        finally:
            CommandTest.binary = real

    def test_the_same_tokens_on_every_cpu(self):
        for cpu, tier in CPUS:
            with self.subTest(cpu=cpu):
                code, out, error = self.emulated(cpu, *self.usual)
                self.assertEqual(code, 0, error)
                self.assertEqual(out, self.native)
                self.assertIn(f"tier {tier},", error)

    def test_a_tier_can_be_forced_downwards(self):
        code, out, error = self.emulated("Haswell", *self.usual, "--tier", "scalar")
        self.assertEqual(code, 0, error)
        self.assertEqual(out, self.native)
        self.assertIn("tier scalar,", error)

    def test_what_a_cpu_lacks_is_refused_by_name(self):
        for cpu, tier, best in (("Nehalem", "avx2", "scalar"), ("Haswell", "avx512", "avx2"),
                                ("Haswell", "avxvnni", "avx2"),
                                ("Haswell", "neon", "avx2")):
            code, out, error = self.emulated(cpu, *self.usual, "--tier", tier)
            self.assertEqual(code, 2, error)
            self.assertEqual(out, "")
            lines = [line for line in error.splitlines() if line.startswith("waste: ")]
            self.assertEqual(len(lines), 1, error)
            self.assertIn(f"this CPU cannot run '{tier}'; the best it can is '{best}'", lines[0])


if __name__ == "__main__":
    command_support.main(__name__)
