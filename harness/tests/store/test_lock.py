"""One writer at a time."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.errors import ExitCode, RunLocked, StoreError
from harness.host.progress import Lines
from harness.plan import Plan
from harness.run import create_run, execute
from harness.store import RunStore
from harness.store.lock import holder_of

_HOLDER = """
import sys
from pathlib import Path
from harness.store import RunStore

with RunStore.open(Path(sys.argv[1])) as store, store.lock("powercut run -w all"):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(run: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_in_one_line_who_writes_and_a_dead_one_holds_nothing(
    store: RunStore,
) -> None:
    """`run`, and `run --resume` of it while it ran, shared scratch: e2fsck saw damage on healthy ext4."""
    process = holder(store.path)
    try:
        with pytest.raises(RunLocked) as caught, store.lock("powercut run --resume"):
            pytest.fail("two writers")
        assert f"process {process.pid} on " in caught.value.what
        assert "powercut run -w all" in caught.value.what
        assert "\n" not in caught.value.what
        assert caught.value.exit_code is ExitCode.UNDECIDED
        assert caught.value.next_step
        process.send_signal(signal.SIGKILL)
        process.wait()
        with store.lock("powercut run --resume"):
            pass
    finally:
        process.kill()
        process.communicate()


def test_the_lock_is_let_go_of_at_the_end_and_by_an_exception(store: RunStore) -> None:
    with pytest.raises(RuntimeError), store.lock("one"):
        raise RuntimeError
    with store.lock("two"), pytest.raises(RunLocked, match=r"\(two\)"), store.lock("three"):
        pytest.fail("two writers in one process")


@pytest.mark.parametrize("text", [b"", b"\xff\xfe{", b"[" * 99_999, b'{"pid": 1}'])
def test_a_lock_file_that_names_no_holder_still_locks(store: RunStore, text: bytes) -> None:
    with store.lock("one"):
        (store.path / "lock").write_bytes(text)
        with pytest.raises(RunLocked, match="another process"), store.lock("two"):
            pytest.fail("two writers")


def test_a_run_that_somebody_writes_is_not_executed(tmp_path: Path) -> None:
    """Nothing is touched, scratch images of the other process least of all."""
    plan = Plan(configurations=["ext4/ordered"], workloads=["append-fsync"])
    with create_run(plan, tmp_path, "test") as store:
        (store.path / "scratch").mkdir()
        (store.path / "scratch" / "disk.img").touch()
        with store.lock("powercut run"), pytest.raises(RunLocked):
            execute(plan, store, Lines(Console(quiet=True)))
        assert (store.path / "scratch" / "disk.img").exists()


def test_threads_of_one_process_do_not_share_it(store: RunStore) -> None:
    refused: list[RunLocked] = []

    def second() -> None:
        try:
            with store.lock("second"):
                pass
        except RunLocked as e:
            refused.append(e)

    with store.lock("first"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert len(refused) == 1


def test_who_asks_whether_a_run_is_written_to_is_in_nobodys_way(store: RunStore) -> None:
    """Lists of runs had a quarter of the locks refused that others took meanwhile, for one long gone."""
    with store.lock("powercut run"):
        assert "powercut run" in holder_of(store.layout.lock)
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            holder_of(store.layout.lock)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(500):
            with store.lock("powercut run --resume"):
                pass
    finally:
        done.set()
        asking.join()


def only_read(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """From now on every lock file can only be read, also where the tests run as root."""
    real = os.open

    def opened(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if str(path).endswith("/lock") and flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, flags, *rest, **named)

    monkeypatch.setattr(os, "open", opened)


def test_who_writes_a_run_that_can_only_be_read_is_known(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`powercut list runs` said "cannot be read" of runs on a read-only mount, and of another user."""
    process = holder(store.path)
    try:
        only_read(monkeypatch, errno.EACCES)
        assert f"process {process.pid} on " in holder_of(store.layout.lock)
    finally:
        process.communicate()
    assert holder_of(store.layout.lock) == ""


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_run_that_can_only_be_read_is_said_to_be_one(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """`run --resume` said "lock: Read-only file system", and to ask powercut doctor."""
    only_read(monkeypatch, number)
    with pytest.raises(StoreError, match="cannot be written to") as caught, store.lock("powercut run"):
        pytest.fail("it was written")
    # A series or a measurement is not looked for below runs/.
    assert caught.value.next_step == "copy it to a folder that can be written to, and name the copy"
