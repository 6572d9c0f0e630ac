#!/usr/bin/env python3
"""Plants each forbidden include in a small tree and expects check_includes.py to find it, and only it."""

import pathlib
import tempfile
import unittest

import check_includes

CLEAN = {
    "kernels/panel.h": "#include <cstdint>\n",
    "kernels/avx2/kda.cc": '#include "kernels/panel.h"\n#include <immintrin.h>\n',
    "container/file.cc": '#include "kernels/panel.h"\n#include <fcntl.h>\n#include <fmt/format.h>\n',
    "container/file.h": "#include <string>\n",
    "container/json.h": "#include <nlohmann/json.hpp>\n",
    "container/manifest.cc": '#include "container/json.h"\n',
    "engine/model.h": '#include "container/file.h"\n',
    "tools/run.cc": '#include "engine/model.h"\n#include <fmt/format.h>\n',
}

# The file that is added or replaced, its text, and a piece of the expected fault.
FORBIDDEN = [
    ("kernels/norm.cc", '#include "container/file.h"\n', "may not use container/"),
    ("container/file.h", '#include "engine/model.h"\n', "may not use engine/"),
    ("engine/model.h", '  #  include "tools/command.h"\n', "may not use tools/"),
    ("tools/run.cc", '#include "tests/helper.h"\n', "may not use tests/"),
    ("engine/model.h", "#include <container/file.h>\n", "with quotes"),
    ("engine/model.h", '#include "container/gone.h"\n', "no such file"),
    ("engine/model.cc", '#include "model.h"\n', "from the root"),
    ("container/file.h", '#include "container/json.h"\n', "only .cc files"),
    ("engine/model.cc", '#include "container/json.h"\n', "only .cc files"),
    ("kernels/norm.cc", "#include <immintrin.h>\n", "tier"),
    ("engine/model.cc", "#include <arm_neon.h>\n", "tier"),
    ("kernels/scalar/kda.cc", "#include <immintrin.h>\n", "only include"),
    ("kernels/avx2/kda.cc", "#include <algorithm>\n", "only include"),
    ("kernels/neon/kda.cc", "#include <immintrin.h>\n", "only include"),
    ("kernels/amx/kda.cc", "#include <immintrin.h>\n", "unknown"),
    ("kernels/norm.cc", "#include <thread>\n", "arithmetic only"),
    ("engine/model.cc", "#include <fcntl.h>\n", "container/ only"),
    ("tools/run.cc", "#include <sys/mman.h>\n", "container/ only"),
    ("engine/model.cc", "#include <liburing.h>\n", "container/ only"),
]


def faults_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_includes.check(root)[0]


class CheckIncludes(unittest.TestCase):
    def test_clean_tree_passes(self):
        self.assertEqual(faults_of(CLEAN), [])

    def test_each_forbidden_include_is_found(self):
        for name, text, expected in FORBIDDEN:
            with self.subTest(file=name, include=text.strip()):
                faults = faults_of({**CLEAN, name: text})
                self.assertTrue(faults and all(fault.startswith(f"{name}:1:") for fault in faults), faults)
                self.assertTrue(any(expected in fault for fault in faults), faults)


if __name__ == "__main__":
    unittest.main()
