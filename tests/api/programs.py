"""What the script tests of the C interface share."""
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from command_support import CommandTest  # noqa: E402

PROMPT = "Once upon a time, there was a little"
STORY_TOKENS = 24


class ProgramTest(CommandTest):
    """A container of the demo model, which all tests share and none changes."""

    library = None
    _shared = None

    @classmethod
    def setUpClass(cls):
        cls._shared = tempfile.TemporaryDirectory(prefix="waste-test-")
        cls.addClassCleanup(cls._shared.cleanup)
        cls.container = os.path.join(cls._shared.name, "demo.waste")
        cls("run_program").convert(os.path.join(cls.data, "demo-model"), cls.container)

    def environment(self):
        # What the user's own runs learned is neither used nor changed.
        return dict(os.environ, XDG_CACHE_HOME=self.path("cache"), PYTHONDONTWRITEBYTECODE="1")

    def run_program(self, *arguments, code=0, environment=None, **options):
        """stdout of a program that ends with `code`."""
        done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=300,
                              check=False, env=environment or self.environment(), **options)
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout}{done.stderr}")
        self.error = done.stderr
        return done.stdout

    def story(self):
        """What the command line tells."""
        out, _ = self.succeed("run", self.container, PROMPT, "-n", str(STORY_TOKENS), "--temp", "0", "-q")
        return out.rstrip("\n")


def set_up(arguments, count):
    """Takes the binary, the source directory, the library and `count` more off the arguments; returns these."""
    binary, source, library, *more = map(os.path.abspath, arguments[1:4 + count])
    CommandTest.binary = binary
    CommandTest.data = os.path.join(source, "tests", "data")
    ProgramTest.library = library
    del arguments[1:4 + count]
    return more
