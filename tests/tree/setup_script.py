# SPDX-License-Identifier: Apache-2.0
"""ci/setup on machines that lack things: a PATH with stand-ins for apt-get, sudo and the compiler, so that nothing is installed."""

import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import unittest

import tree

# What a bare Debian has; everything else that ci/setup looks for is absent until a stand-in appears.
BARE = "bash env sed awk grep dirname basename cat head sort printf sleep mkdir chmod nproc".split()
DEBIAN = 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
UBUNTU = 'ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n'
# The n-th line of the file `works` is the exit code of this apt-get's n-th install.
APT = """#!/usr/bin/env bash
echo "apt-get $* [${DEBIAN_FRONTEND:-}]" >> "$LOG"
case " $* " in
  *" --simulate "*) exit "$(cat "$WORLD/simulate")" ;;
  *" update "*) exit 0 ;;
esac
code="$(head -n 1 "$WORLD/works")"
sed -i 1d "$WORLD/works"
[[ "$code" != 0 ]] || for name in c++ cc g++ cmake ninja git ccache readelf make python3 localedef; do
  { echo '#!/usr/bin/env bash'; [[ $name != cmake ]] || echo 'echo cmake version 3.25.1'; } > "$WORLD/bin/$name"
  chmod +x "$WORLD/bin/$name"
done
exit "$code"
"""
SUDO = """#!/usr/bin/env bash
echo "sudo $*" >> "$LOG"
[[ "$1" != -n ]] || exit "$(cat "$WORLD/sudo_n")"
exec "$@"
"""


class world:
    """One machine: its folder of programs, its distribution, and the log of what was called."""

    def __init__(self, folder, release=DEBIAN, simulate=0, works=(0,), sudo=None, apt=True):
        self.folder = pathlib.Path(folder)
        (self.folder / "bin").mkdir()
        # A copy, since another user may not reach the tree.
        (self.folder / "ci").mkdir()
        for name in ("setup", "lib.sh"):
            shutil.copyfile(tree.ROOT / "ci" / name, self.folder / "ci" / name)
        for name in BARE:
            os.symlink(shutil.which(name), self.folder / "bin" / name)
        self.write("os-release", release)
        self.write("simulate", str(simulate))
        self.write("works", "".join(f"{code}\n" for code in works))
        self.write("log", "")
        if apt:
            self.program("apt-get", APT)
        if sudo is not None:
            self.write("sudo_n", str(sudo))
            self.program("sudo", SUDO)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")

    def program(self, name, text):
        self.write("bin/" + name, text)
        (self.folder / "bin" / name).chmod(0o755)

    def environment(self, **more):
        return {"PATH": str(self.folder / "bin"), "LOG": str(self.folder / "log"), "WORLD": str(self.folder),
                "MSABENCH_OS_RELEASE": str(self.folder / "os-release"), "HOME": str(self.folder), **more}

    def setup(self, *arguments, user=None, **environment):
        """Without a terminal. `user` other than None runs it as that user id, where the test itself may choose."""
        options = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        return subprocess.run(["bash", str(self.folder / "ci/setup"), *arguments], env=self.environment(**environment), text=True,
                              capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=60, **options)

    def log(self):
        return (self.folder / "log").read_text(encoding="utf-8").splitlines()


AS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, to try it as root and as somebody else")


class setup(unittest.TestCase):
    def world(self, **options):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        return world(folder.name, **options)

    def test_dry_run_prints_the_exact_line(self):
        for release in (DEBIAN, UBUNTU):
            here = self.world(release=release)
            done = here.setup("--dry-run")
            self.assertEqual(done.returncode, 0, done.stderr)
            # The system's own Python is found by its full path, which no PATH hides.
            self.assertEqual(done.stdout.replace("python3-jsonschema ", ""),
                             "apt-get install -y --no-install-recommends g++ cmake ninja-build git libfmt-dev nlohmann-json3-dev "
                             "libcli11-dev libhwy-dev libssl-dev libgtest-dev libbenchmark-dev python3 binutils make locales ccache "
                             "clang-19 libclang-rt-19-dev\n")
            self.assertEqual(here.log(), [])

    def test_minimal_leaves_the_tests_needs_out(self):
        done = self.world().setup("--minimal", "--dry-run")
        for package in ("libgtest-dev", "python3", "binutils", "make", "clang-19"):
            self.assertNotIn(f" {package} ", done.stdout)
        self.assertIn(" g++ cmake ninja-build ", done.stdout)

    def test_without_anybody_to_ask_it_installs_nothing(self):
        here = self.world()
        done = here.setup("--minimal")
        self.assertEqual(done.returncode, 4)
        self.assertIn("pass --yes or run: ", done.stderr)
        self.assertIn("apt-get install -y --no-install-recommends g++", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(here.log(), [])

    def test_another_distribution_gets_one_line_of_concepts(self):
        for release in ("ID=fedora\nVERSION_ID=40\nPRETTY_NAME=Fedora\n", 'ID=debian\nVERSION_ID="11"\nPRETTY_NAME=Debian\n', "", "ID=debian\n"):
            with self.subTest(release=release):
                here = self.world(release=release)
                done = here.setup("--yes")
                self.assertEqual(done.returncode, 4)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn("a C and C++20 compiler (g++ 12 or later), ", done.stderr)
                self.assertNotIn("libfmt-dev", done.stderr)
                self.assertEqual(here.log(), [])

    def complete(self, here):
        """Stand-ins of everything ci/setup looks for."""
        for name in "c++ cc git ninja readelf make python3 localedef".split():
            here.program(name, "#!/usr/bin/env bash\n")
        here.program("cmake", "#!/usr/bin/env bash\necho cmake version 3.28.3\n")

    def test_a_complete_machine_is_asked_for_nothing(self):
        here = self.world(release="ID=fedora\n", apt=False)
        self.complete(here)
        done = here.setup()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "ci/setup: everything needed is here\n", ""))

    def test_an_old_cmake_is_missing(self):
        here = self.world()
        self.complete(here)
        here.program("cmake", "#!/usr/bin/env bash\necho cmake version 3.9.6\n")
        self.assertEqual(here.setup("--dry-run").stdout, "apt-get install -y --no-install-recommends cmake ccache clang-19 libclang-rt-19-dev\n")

    @AS_ROOT
    def test_root_installs_and_updates_only_where_lists_are_missing(self):
        for simulate, updates in ((0, 0), (100, 1)):
            with self.subTest(simulate=simulate):
                here = self.world(simulate=simulate)
                done = here.setup(CI="true")
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                self.assertEqual(sum(" update " in line for line in here.log()), updates)
                self.assertTrue(done.stdout.startswith("ci/setup: installed: g++ cmake "), done.stdout)
                last = here.log()[-1]
                self.assertTrue(last.startswith("apt-get -o DPkg::Lock::Timeout=120 "), last)
                self.assertIn(" install -y --no-install-recommends g++ cmake ", last)
                self.assertTrue(last.endswith(" [noninteractive]"), last)
                again = here.setup(CI="true")
                self.assertEqual((again.returncode, again.stdout), (0, "ci/setup: everything needed is here\n"))

    @AS_ROOT
    def test_a_failed_installation_is_tried_again_after_an_update(self):
        here = self.world(works=(100, 0))
        self.assertEqual(here.setup("--yes").returncode, 0)
        calls = [next(word for word in line.split() if word in ("install", "update")) for line in here.log() if "--simulate" not in line]
        self.assertEqual(calls, ["install", "update", "install"])

    @AS_ROOT
    def test_an_installation_that_fails_or_brings_nothing(self):
        here = self.world(works=(100, 100))
        done = here.setup("--yes")
        self.assertEqual(done.returncode, 4)
        self.assertIn("could not install", done.stderr)
        here = self.world(works=())
        here.program("apt-get", "#!/usr/bin/env bash\nexit 0\n")
        done = here.setup("--yes")
        self.assertEqual(done.returncode, 4)
        self.assertIn("still missing after the installation: a C and C++20 compiler", done.stderr)

    @AS_ROOT
    def test_without_root(self):
        for sudo, words in ((None, "neither root nor sudo here, have an administrator run: apt-get install"),
                            (1, "nobody is there to type it, run: sudo apt-get install")):
            with self.subTest(sudo=sudo):
                here = self.world(sudo=sudo)
                for file in ("log", "works"):
                    (here.folder / file).chmod(0o666)
                done = here.setup("--yes", user=65534)
                self.assertEqual(done.returncode, 4, done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertFalse(any("install" in line for line in here.log()))

    @AS_ROOT
    def test_on_a_terminal_it_asks(self):
        for answer, code, installs in (("n", 4, 0), ("", 4, 0), ("y", 0, 1)):
            with self.subTest(answer=answer):
                here = self.world()
                ours, theirs = pty.openpty()
                process = subprocess.Popen(["bash", str(here.folder / "ci/setup")], env=here.environment(), stdin=theirs, text=True,
                                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                os.write(ours, (answer + "\n").encode())
                output, _ = process.communicate(timeout=60)
                os.close(ours)
                os.close(theirs)
                self.assertIn('Run "apt-get install -y --no-install-recommends g++', output)
                self.assertEqual(process.returncode, code, output)
                self.assertEqual(sum(" install -y " in line for line in here.log()), installs)


if __name__ == "__main__":
    unittest.main()
