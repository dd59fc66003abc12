"""Workloads to start from: what `powercut new` writes. They run and pass as they are."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from harness.errors import EnvironmentLacks, UsageError
from harness.host.files import not_made
from harness.host.text import one_line
from harness.workloads.applications import DESCRIPTION, need_name

OPERATIONS = "operations"

_OPERATIONS = """\
# What is done before the power fails, one operation after the other (workloads/README.md lists them all).
# Judged by what the mode promises: whatever an fsync or a sync that has returned made durable must be there.
summary = "{name}: a file is written and synced"
operations = [
    "create f",
    "append f 5000",
    "fsync f",
    "mkdir d",
    "rename f d/g",
    "sync",
]
"""

_DESCRIPTION = """\
summary = "{name}: each line is synced before it counts"{runtime}

# What the two programs need of this host; the guest has busybox, and all that lies beside `run`.
# programs = ["sqlite3", "redis-cli:redis-tools"]    # behind the colon: its Debian package
# files = ["/usr/share/{name}", "/usr/lib/{name}/*.so"]
# user = "nobody"                                    # for programs that refuse to run as root
# image = "{name}.tar"                               # of docker save: a root for both, instead of the above
# memory_mib = 1024                                  # the least memory of the guests
# image_mib = 256                                    # the least size of the file system
# acknowledges = "lines"                             # each line that `run` prints; no powercut-ack then
# neighbour = true                                   # once more, while another program commits behind a call
# reads = ["lines"]                                  # what `check` reads; everything, unless given

# Each of these is a workload, {name}-KEY: `run` gets the arguments, `check` gets them after $1.
[variants.synced]
summary = "each line is synced before it is acknowledged"
arguments = ["synced"]

# It passes `powercut try`, which cuts no power, and has to fail under `powercut run`: it acknowledges what it
# has not synced. See it fail, then take it out.
[variants.forgets]
summary = "no line is synced"
arguments = ["forget"]
"""

_SHELL_RUN = """\
#!/bin/sh
# What happens before the power fails. The current directory is the file system under test, and empty.
# Call `powercut-ack TEXT` wherever a user would be told that TEXT is done.
set -e
: >lines
[ "$1" = forget ] || sync . # the name of a new file is in its directory, which needs an fsync of its own
for i in 1 2 3 4 5; do
	echo "line $i" >>lines
	[ "$1" = forget ] || sync lines
	powercut-ack "line $i"
done
"""

_SHELL_CHECK = """\
#!/bin/sh
# Runs after every power cut, on a copy of what came back. $1 lists what had been acknowledged by then.
# Exit 0: all of that is there. 1: it is not, and the first line of output names the finding. Else: unknown.
# Before the first acknowledgement there may be anything, or nothing.
while read -r line; do
	grep -qsx "$line" lines || {
		echo "$line was acknowledged and is gone"
		exit 1
	}
done <"$1"
"""

_PYTHON_RUN = '''\
#!/usr/bin/env python3
"""What happens before the power fails. The current directory is the file system under test, and empty.

Call `powercut-ack TEXT` wherever a user would be told that TEXT is done.
"""

import os
import subprocess
import sys

forgets = sys.argv[1:] == ["forget"]
with open("lines", "w") as lines:
    if not forgets:  # the name of a new file is in its directory, which needs an fsync of its own
        directory = os.open(".", os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
    for i in range(1, 6):
        print(f"line {i}", file=lines, flush=True)
        if not forgets:
            os.fsync(lines.fileno())
        subprocess.run(["powercut-ack", f"line {i}"], check=True)
'''

_PYTHON_CHECK = '''\
#!/usr/bin/env python3
"""Runs after every power cut, on a copy of what came back. Its first argument is a file that lists what had
been acknowledged by then.

Exit 0: all of that is there. 1: it is not, and the first line of output names the finding. Else: unknown.
Before the first acknowledgement there may be anything, or nothing.
"""

import pathlib
import sys
import traceback

try:
    lines = pathlib.Path("lines")
    there = lines.read_text(errors="replace").splitlines() if lines.exists() else []
    for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
        if line not in there:
            print(f"{line} was acknowledged and is gone")
            sys.exit(1)
except Exception:  # Python itself would end with 1, which is a finding
    traceback.print_exc()
    sys.exit(2)
'''

_C_RUN = """\
// What happens before the power fails. The current directory is the file system under test, and empty.
// Run `powercut-ack TEXT` wherever a user would be told that TEXT is done. Built by `make`, statically: the
// guest has no libraries.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int acknowledge(const char *text)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		execlp("powercut-ack", "powercut-ack", text, (char *)NULL);
		_exit(127);
	}
	return pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0;
}

int main(int argc, char **argv)
{
	int forgets = argc > 1 && strcmp(argv[1], "forget") == 0;
	int lines = open("lines", O_CREAT | O_WRONLY | O_APPEND, 0644);
	int directory = open(".", O_RDONLY);

	if (lines < 0 || directory < 0)
		return 1;
	/* The name of a new file is in its directory, which needs an fsync of its own. */
	if (!forgets && fsync(directory) != 0)
		return 1;
	for (int i = 1; i <= 5; i++) {
		char text[32];

		snprintf(text, sizeof(text), "line %d", i);
		if (dprintf(lines, "%s\\n", text) < 0)
			return 1;
		if (!forgets && fsync(lines) != 0)
			return 1;
		if (acknowledge(text))
			return 1;
	}
	return 0;
}
"""

_GO_RUN = """\
// What happens before the power fails. The current directory is the file system under test, and empty.
// Run `powercut-ack TEXT` wherever a user would be told that TEXT is done. Built by `make`, without cgo: the
// guest has no libraries.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
)

func main() {
	forgets := len(os.Args) > 1 && os.Args[1] == "forget"
	lines, err := os.OpenFile("lines", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	// The name of a new file is in its directory, which needs an fsync of its own.
	if !forgets {
		directory, err := os.Open(".")
		if err != nil {
			log.Fatal(err)
		}
		if err := directory.Sync(); err != nil {
			log.Fatal(err)
		}
	}
	for i := 1; i <= 5; i++ {
		text := fmt.Sprintf("line %d", i)
		if _, err := fmt.Fprintln(lines, text); err != nil {
			log.Fatal(err)
		}
		if !forgets {
			if err := lines.Sync(); err != nil {
				log.Fatal(err)
			}
		}
		if err := exec.Command("powercut-ack", text).Run(); err != nil {
			log.Fatal(err)
		}
	}
}
"""

_GO_MAKEFILE = """\
run: run.go
	CGO_ENABLED=0 go build -o $@ $<
"""

_RUST_RUN = """\
// What happens before the power fails. The current directory is the file system under test, and empty.
// Run `powercut-ack TEXT` wherever a user would be told that TEXT is done. Built by `make`, statically: the
// guest has no libraries.
use std::fs::{File, OpenOptions};
use std::io::{Error, Write};
use std::process::Command;

fn main() -> Result<(), Error> {
    let forgets = std::env::args().nth(1).as_deref() == Some("forget");
    let mut lines = OpenOptions::new().create(true).append(true).open("lines")?;
    if !forgets {
        // The name of a new file is in its directory, which needs an fsync of its own.
        File::open(".")?.sync_all()?;
    }
    for i in 1..=5 {
        let text = format!("line {i}");
        writeln!(lines, "{text}")?;
        if !forgets {
            lines.sync_all()?;
        }
        if !Command::new("powercut-ack").arg(&text).status()?.success() {
            return Err(Error::other("powercut-ack failed"));
        }
    }
    Ok(())
}
"""

_RUST_MAKEFILE = """\
run: run.rs
	rustc -O -C target-feature=+crt-static -o $@ $<
"""

_MAKEFILE = """\
run: run.c
	$(CC) -O2 -Wall -static -o $@ $<
"""

_APPLICATIONS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "shell": {DESCRIPTION: _DESCRIPTION, "run": _SHELL_RUN, "check": _SHELL_CHECK},
        "python": {DESCRIPTION: _DESCRIPTION, "run": _PYTHON_RUN, "check": _PYTHON_CHECK},
        "c": {DESCRIPTION: _DESCRIPTION, "run.c": _C_RUN, "Makefile": _MAKEFILE, "check": _SHELL_CHECK},
        "go": {DESCRIPTION: _DESCRIPTION, "run.go": _GO_RUN, "Makefile": _GO_MAKEFILE, "check": _SHELL_CHECK},
        "rust": {
            DESCRIPTION: _DESCRIPTION,
            "run.rs": _RUST_RUN,
            "Makefile": _RUST_MAKEFILE,
            "check": _SHELL_CHECK,
        },
    }
)
_COMPILERS: Mapping[str, tuple[Mapping[str, str], str]] = MappingProxyType(
    {
        "c": ({"cc": "gcc libc6-dev"}, "C"),
        "go": ({"go": "golang-go"}, "Go"),
        "rust": ({"rustc": "rustc", "cc": "gcc libc6-dev"}, "Rust"),
    }
)
"""What compiles a kind, each program with its packages, and what the language is called."""
KINDS = (*_APPLICATIONS, OPERATIONS)


def make_workload(place: Path, kind: str) -> Path:
    """Write a workload of one of KINDS: an application's directory, or a file of operations, whose name ends
    in .toml. Returns where it is. Raises UsageError for a name that no workload can have, and if something
    is there already; EnvironmentLacks if it would have to be compiled, and cannot be here.
    """
    if kind == OPERATIONS and place.suffix != ".toml":
        place = place.with_name(f"{place.name}.toml")
    name = place.stem if kind == OPERATIONS else place.name
    need_name(name)
    if place.exists() or place.is_symlink():
        raise UsageError(f"{place} is there already", "choose another name, or remove it")
    above = place.absolute().parent
    if not above.is_dir() and not above.parent.is_dir():
        raise UsageError(f"{place} cannot be made: there is no {above.parent}", f"mkdir -p {above}")
    if kind in _COMPILERS:
        _need_compiler(kind)
    try:
        _write(place, name, kind)
    except OSError as e:
        raise UsageError(not_made(place, e), "name a folder that you may write to") from e
    return place


def _need_compiler(kind: str) -> None:
    """Before anything is written: a workload without its program is none."""
    programs, language = _COMPILERS[kind]
    needed = {**programs, "make": "make"}
    if missing := [program for program in needed if not shutil.which(program)]:
        listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
        packages = " ".join(needed[program] for program in missing)
        raise EnvironmentLacks(f"a workload in {language} needs {listed}", f"run: apt-get install {packages}")


def _compile(place: Path) -> None:
    made = subprocess.run(
        ["make", "-s", "-C", str(place)], capture_output=True, text=True, errors="replace", check=False
    )
    if made.returncode:
        said = one_line(made.stderr.strip().splitlines()[0]) if made.stderr.strip() else "make failed"
        raise EnvironmentLacks(
            f"{place} is written, and cannot be compiled: {said}", f"fix that, and run: make -C {place}"
        )


def _write(place: Path, name: str, kind: str) -> None:
    if kind == OPERATIONS:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_OPERATIONS.replace("{name}", name))
        return
    runtime = '\nruntime = "python"' if kind == "python" else ""
    place.mkdir(parents=True)
    for file, text in _APPLICATIONS[kind].items():
        path = place / file
        is_program = text.startswith("#!")
        path.write_text(text if is_program else text.replace("{name}", name).replace("{runtime}", runtime))
        path.chmod(0o755 if is_program else 0o644)
    if kind in _COMPILERS:
        _compile(place)
