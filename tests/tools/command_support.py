"""What the script tests share: running the command, changed copies of checkpoints, small file systems."""
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import make_checkpoint
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

MIB = 1 << 20


class CommandTest(unittest.TestCase):
    """Runs `binary`; `data` is tests/data. Each test has `directory` for itself."""

    binary = None
    data = None
    directory = tempfile.gettempdir()  # until a test has its own

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="waste-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def model(self, name):
        return os.path.join(self.data, name)

    def start(self, *arguments, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stderr", subprocess.PIPE)
        # What the user's own runs learned and measured is neither used nor changed.
        options.setdefault("env", dict(os.environ, XDG_CACHE_HOME=os.path.join(self.directory, "cache")))
        return subprocess.Popen([self.binary, *arguments], stdout=subprocess.PIPE, **options)

    def run_command(self, *arguments, timeout=120, **options):
        """(exit code, stdout, stderr); a code below zero is the signal that ended it."""
        process = self.start(*arguments, **options)
        try:
            out, error = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"still running after {timeout} s: {arguments}")
        return process.returncode, out.decode(errors="replace"), error.decode(errors="replace")

    def succeed(self, *arguments, **options):
        code, out, error = self.run_command(*arguments, **options)
        self.assertEqual(code, 0, f"{arguments}: {error}")
        return out, error

    def convert(self, source, destination, *options, **settings):
        return self.succeed("convert", "-q", source, destination, *options, **settings)

    def refuse(self, arguments, *mentioned, code=1, **options):
        """The command fails with one line on stderr that says `waste: ` and every word of `mentioned`."""
        found, out, error = self.run_command(*arguments, **options)
        self.assertEqual(found, code, f"{arguments}: exit code {found}, stderr: {error}")
        lines = error.splitlines()
        self.assertEqual(len(lines), 1, f"{arguments}: not one line: {error}")
        self.assertTrue(lines[0].startswith("waste: "), error)
        for word in mentioned:
            self.assertIn(word, lines[0], f"{arguments}")
        return lines[0]

    def refuse_convert(self, source, *mentioned, options=(), **settings):
        """As refuse(), and no destination may be left behind."""
        destination = self.path("refused.waste")
        line = self.refuse(("convert", "-q", source, destination, *options), *mentioned, **settings)
        self.assertFalse(os.path.exists(destination), f"left behind after: {line}")
        return line

    def commands(self):
        """Names of the subcommands there are."""
        out, _ = self.succeed("--help")
        listed = out[out.index("Subcommands:"):].splitlines()[1:]
        return {line.split()[0] for line in listed if line.startswith("  ") and line[2:3].isalpha()}


def copy_model(source, destination, config=None, tensors=None):
    """A copy of a checkpoint. `config(dict)` and `tensors(dict)` change what they are given: the whole config,
    and every shard's {name: (dtype, shape, bytes)}. Shards that nobody changes are linked."""
    os.makedirs(destination)
    for name in os.listdir(source):
        path = os.path.join(source, name)
        target = os.path.join(destination, name)
        if name == "golden.safetensors":
            continue
        if name.endswith(".safetensors") and tensors is None:
            os.symlink(os.path.abspath(path), target)
        elif os.path.isfile(path):
            shutil.copyfile(path, target)
    if config:
        path = os.path.join(destination, "config.json")
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        config(content)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
    if tensors:
        names_by_shard = {}
        for name in sorted(os.listdir(destination)):
            if name.endswith(".safetensors"):
                path = os.path.join(destination, name)
                content = make_checkpoint.read_safetensors(path)
                tensors(content)
                make_checkpoint.write_safetensors(path, content)
                names_by_shard[name] = list(content)
        if len(names_by_shard) > 1:
            make_checkpoint.write_index(destination, names_by_shard)
    return destination


def own_file(path):
    """Makes a linked file one that may be changed, and returns its path."""
    if os.path.islink(path):
        source = os.path.realpath(path)
        os.unlink(path)
        shutil.copyfile(source, path)
    return path


def cut(path, missing_bytes):
    os.truncate(own_file(path), os.path.getsize(path) - missing_bytes)


def flip(path, offset, mask=0x01):
    with open(own_file(path), "r+b") as file:
        file.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ mask]))


def digests(directory):
    """{name: SHA-256} of a directory's files."""
    out = {}
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            out[name] = hashlib.sha256(file.read()).hexdigest()
    return out


def identities(directory, wanted=lambda name: True):
    """{name: (inode, time of last change, size)}."""
    out = {}
    for name in os.listdir(directory):
        if wanted(name):
            status = os.stat(os.path.join(directory, name))
            out[name] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return out


@contextlib.contextmanager
def file_system(directory, options):
    """A tmpfs mounted on a new folder of `directory`."""
    if os.geteuid() != 0:
        raise unittest.SkipTest("mounting a file system needs root")
    place = os.path.join(directory, "mounted")
    os.makedirs(place)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True,
                             text=True, check=False)
    if mounted.returncode != 0:
        raise unittest.SkipTest(f"cannot mount a file system: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        os.rmdir(place)


def main(module):
    """test_x.py BINARY SOURCE_DIR [TEST…]. Exit code 77 says that everything was skipped."""
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} BINARY SOURCE_DIR [TEST…]")
    CommandTest.binary = os.path.abspath(sys.argv[1])
    CommandTest.data = os.path.join(os.path.abspath(sys.argv[2]), "tests", "data")
    result = unittest.main(module=module, argv=[sys.argv[0], *sys.argv[3:]], verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun == len(result.skipped):
        sys.exit(77)
