"""What holds for every command."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

import harness
from harness.cli import main, options
from harness.errors import ExitCode
from harness.tests.cli.runner import powercut, refused
from harness.tests.report.demo import demo_run


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of every command, those of groups too."""
    for name, command in group.commands.items():
        yield (*words, name)
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_every_command_has_help(words: tuple[str, ...]) -> None:
    done = powercut(*words, "--help")
    assert done.exit_code == 0
    assert len(done.output.splitlines()) > 5


def test_a_renamed_command_keeps_its_old_name_and_hides_it() -> None:
    """`powercut dossier`, in scripts of before, was no command any more."""
    assert powercut("dossier", "--help").output == powercut("bugreport", "--help").output
    assert "dossier" not in powercut("--help").output


def test_a_packed_run_needs_no_unpacking_and_whoever_looks_for_it_is_told() -> None:
    """`unpack` was answered by "Did you mean pack?"."""
    done = powercut("unpack", "run.tar.zst")
    assert done.exit_code == ExitCode.USAGE
    assert "every command that takes a RUN takes a file of powercut pack" in " ".join(done.output.split())
    assert "--from takes such a file as it is" in powercut("--help").output


def test_who_looks_for_a_bisection_is_told_where_it_is() -> None:
    """It asked "did you mean list?"."""
    said = " ".join(powercut("bisect").output.split())
    assert "powercut patch TREE BASE..HEAD names the commit" in said


_LOADING = """
class Finder:
    def find_spec(self, name, *_):
        if name == "harness.cli.{}": ended()
sys.meta_path.insert(0, Finder())
sys.argv = ["powercut", "pack"]
runpy.run_module("harness", run_name="__main__")
"""
_WORKING = """
import harness.cli
from harness.cli.guard import guarded
harness.cli.main = guarded(lambda: ended())
runpy.run_module("harness", run_name="__main__")
"""


def ended_by(number: signal.Signals, usual: str, rest: str) -> subprocess.CompletedProcess[str]:
    """A process that gets a signal, with what happens then unless Powercut says otherwise."""
    words = f"""
import os, runpy, signal, sys, threading
signal.signal({number:d}, {usual})  # whatever this process inherited
def ended():
    os.kill(os.getpid(), {number:d})
    if {usual} is not signal.SIG_IGN: threading.Event().wait(60)
{rest}"""
    return subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("rest", [_LOADING.format("sections"), _LOADING.format("pack"), _WORKING])
@pytest.mark.parametrize(
    ("number", "usual"),
    [
        (signal.SIGINT, "signal.default_int_handler"),
        (signal.SIGTERM, "signal.SIG_DFL"),
        (signal.SIGHUP, "signal.SIG_DFL"),
    ],
)
def test_a_signal_that_ends_is_an_interruption(number: signal.Signals, usual: str, rest: str) -> None:
    """In the first half second of `powercut pack` it was a traceback of thirty lines, or no word at all."""
    done = ended_by(number, usual, rest)
    assert (done.returncode, done.stderr) == (ExitCode.INTERRUPTED, "powercut: interrupted\n")


def test_a_hangup_that_is_ignored_stays_so() -> None:
    assert ended_by(signal.SIGHUP, "signal.SIG_IGN", _WORKING).returncode == ExitCode.CONSISTENT


def test_the_command_is_the_one_that_a_signal_interrupts() -> None:
    project = msgspec.toml.decode((Path(harness.__file__).parent.parent / "pyproject.toml").read_bytes())
    assert project["project"]["scripts"]["powercut"] == "harness.__main__:main"


def test_ctrl_c_while_a_package_is_unpacked_does_not_accuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with "Aborted!" and 1, which is "inconsistent"."""

    def interrupt(*_: object) -> Path:
        raise KeyboardInterrupt

    (tmp_path / "run.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    monkeypatch.setattr(options, "unbundle", interrupt)
    done = powercut("report", tmp_path / "run.tar.zst")
    assert done.exit_code == ExitCode.INTERRUPTED
    assert "powercut: interrupted" in done.output


@pytest.mark.parametrize("words", list(commands(main)), ids=" ".join)
def test_every_help_teaches_by_an_example(words: tuple[str, ...]) -> None:
    said = powercut(*words, "--help").output
    assert f"powercut {' '.join(words)}" in said


def test_the_help_names_every_exit_code_and_where_runs_are_kept() -> None:
    """5 was missing; `--out X` keeps runs in X/runs, which nothing said."""
    said = " ".join(powercut("--help").output.partition("Exit codes:")[2].split())
    for code in (*range(ExitCode.TIME_UP + 1), int(ExitCode.INTERRUPTED)):
        assert f"{code} " in said
    assert "DIR/runs" in powercut("run", "--help").output


BAD_PATHS: list[list[str]] = [
    ["report", "/gone"],
    ["compare", "/gone", "/gone"],
    ["repro", "ext4-ordered/append-fsync@1", "--from", "/gone"],
    ["repro", "ext4-ordered/append-fsync@1", "--export", "/gone/disk.img"],
    ["shrink", "ext4-ordered/append-fsync", "--from", "/gone"],
    ["shrink", "ext4-ordered/append-fsync", "--output", "/gone/short.toml"],
    ["run", "--resume", "/gone"],
    ["run", "--recordings", "/gone"],
    ["run", "--recordings", "/"],
    ["run", "--kernel", "/gone/bzImage"],
    ["run", "--modules", "/gone"],
    ["run", "--module", "/gone/ext4.ko"],
    ["run", "--expect", "/gone"],
    ["run", "-w", "/gone/w.toml"],
    ["run", "--out", "/dev/null/reports"],
    ["smoke", "--out", "/dev/null"],
    ["log", "ls", "/gone"],
    ["kernel", "build", "--source", "/gone"],
    ["measure", "--resume", "/gone"],
    ["measure", "--resume", "/"],
    ["bench", "--json", "/gone/bench.json"],
    ["trace", "--json", "/gone/trace.json"],
    ["trace", "--kernel", "/gone"],
    ["man", "/proc/gone"],
]


@pytest.mark.parametrize("arguments", BAD_PATHS, ids=" ".join)
def test_a_path_that_is_wrong_is_a_usage_error_in_every_command(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 2 in some and 3 in others, and some found out after minutes of work."""
    monkeypatch.chdir(tmp_path)
    refused(*arguments)
    assert not list(tmp_path.iterdir())


def test_a_run_directory_of_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 999}')
    for arguments in (
        ["report", tmp_path],
        ["run", "--resume", tmp_path],
        ["repro", "x@1", "--from", tmp_path],
    ):
        done = powercut(*arguments)
        assert done.exit_code == ExitCode.UNDECIDED, done.output
        assert "999" in done.stderr


@pytest.mark.parametrize("arguments", [["run", "-c"], ["repro"], ["run", "--statse", "x"], ["show", "--al"]])
def test_every_usage_error_says_whose_help_to_look_into(arguments: list[str]) -> None:
    """`powercut run -c` said "Option '-c' requires an argument." and nothing else."""
    told = refused(*arguments)
    assert re.search(rf"Try '.*{arguments[0]} --help' for help", told)


def test_where_nothing_was_run_it_says_where_runs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """reports/latest "is not a run directory": in another folder, it is not there at all."""
    monkeypatch.chdir(tmp_path)
    told = refused("report")
    assert f"{tmp_path}/reports/latest does not exist" in told
    assert "go to the folder in which powercut run was started" in told


def test_a_kernel_that_is_a_path_is_not_looked_for_among_names() -> None:
    """/nope/bzImage was answered with thirteen names of Debian's kernels."""
    told = refused("run", "-c", "ext4/ordered", "--kernel", "/nope/bzImage", "-n")
    assert "no kernel '/nope/bzImage': there is no such file" in told
    assert "uml-6.1" not in told


def test_a_package_that_cannot_be_unpacked_here_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said "[Errno 30] Read-only file system: 'reports/runs'", and nothing of what to do."""
    file = tmp_path / "run.tar.zst"
    file.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(9))

    def fails(*_: object) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "reports/runs")

    monkeypatch.setattr("harness.cli.options.unbundle", fails)
    told = refused("report", file)
    assert "cannot be unpacked in" in told
    assert "start in a folder that can be written to" in told


def test_a_package_is_made_elsewhere_where_this_folder_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with demo_run(tmp_path) as store:
        run = store.path

    def fails(*_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "run.tar.zst.part")

    monkeypatch.setattr("harness.cli.pack.bundle", fails)
    monkeypatch.chdir(tmp_path)
    told = refused("pack", run)
    assert f"{tmp_path} cannot be written to" in told
    assert f"--output {tempfile.gettempdir()}/{run.name}.tar.zst" in told


@pytest.mark.parametrize(
    "words",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_letters_that_the_output_cannot_take_are_escaped(words: dict[str, str], tmp_path: Path) -> None:
    """A run that had found losses ended as a defect of ours with 3, once all its work was done."""
    printed = (
        "import sys, harness.cli\n"
        "from harness.cli.console import console\n"
        "harness.cli.main = lambda: console.say('5 \\u2013 6')\n"
        "from harness.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", printed], capture_output=True, env=os.environ | words, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"5 \\u2013 6\n", b"")


@pytest.mark.parametrize("words", [["list", "runs"], ["doctor"], ["report"]])
def test_a_working_directory_that_was_deleted_is_told(words: list[str], tmp_path: Path) -> None:
    """It was a traceback, "No such file or directory" without a name, and 1, which is "inconsistent"."""
    (tmp_path / "gone").mkdir()
    line = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    program = Path(sys.executable).with_name("powercut")
    started = ["sh", "-c", line, "sh", str(tmp_path / "gone"), str(program), *words]
    done = subprocess.run(started, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("powercut: the folder in which this was started is gone\n  next: ")
