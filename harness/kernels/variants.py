"""Variants of one kernel, each a few edits away from its source, built from a tree that is kept.

The first build of a tree takes minutes, each variant afterwards the seconds that one changed file and the
link take. A tree in the cache:

```
kernels/trees/<machine>-<package>-<configuration>/
    lock            held by the process that uses the tree
    source/ out/    what is compiled, and the build
    image           the unmodified kernel
    built.json      what it is; written last
    originals/      the files that a variant has changed, until they are restored
kernels/variants/<key>/image
```

A variant does not lie among the kernels that `powercut kernel build` made: no run may take it for a sound
one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.host.cache import cache_dir, hold
from harness.host.files import copy_atomically, write_atomically
from harness.host.locks import exclusive
from harness.kernels.build import (
    Built,
    Flavour,
    built_as,
    key_for,
    make_again,
    make_kernel,
    need_tools,
    offered_version,
    release_of_package,
    seal,
    source_tree,
)
from harness.kernels.edits import Edit, apply_edit

WAIT_S = 600.0
"""How long another process's tree is waited for: enough for a kernel, not for a campaign, which has it for
hours.
"""
_PACKAGE = re.compile("[a-z0-9][a-z0-9+.-]+")  # deb-src-control(5)


class SourceTree:
    """An unpacked source: `path`/source. `name`: package and version, for messages."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._name = name

    def edited(self, edits: Sequence[Edit]) -> dict[str, str]:
        """The text of each file that the edits change, by its path in the tree. Raises UsageError if an edit
        does not find its place.
        """
        texts: dict[str, str] = {}
        for edit in edits:
            file = self._file(edit.file)
            texts[edit.file] = apply_edit(
                texts.get(edit.file) or file.read_text(errors="surrogateescape"), edit
            )
        return texts

    def _file(self, name: str) -> Path:
        top = self.path / "source"
        file = top / name
        if not file.resolve().is_relative_to(top.resolve()) or not file.is_file():
            raise UsageError(f"{self._name} has no file {name}", "correct the edit's `file`")
        return file


Check = Callable[[SourceTree], None]
"""Raises UsageError if a source is not what the caller needs."""


class KeptTree(SourceTree):
    """A source tree with its build, locked for this process: see `kept_tree`."""

    def __init__(self, path: Path, flavour: Flavour, jobs: int) -> None:
        self.built = msgspec.json.decode((path / "built.json").read_bytes(), type=Built)
        super().__init__(path, f"{self.built.source} {self.built.source_version}")
        self.flavour = flavour
        self._jobs = jobs
        self._restore()

    @property
    def image(self) -> Path:
        """The unmodified kernel."""
        return self.path / "image"

    def key(self, edits: Sequence[Edit]) -> str:
        """Identifies the variant: a hash of the source, the configuration and the edited files."""
        return hashlib.sha256(self.built.key.encode() + msgspec.json.encode(list(edits))).hexdigest()

    def variant(self, edits: Sequence[Edit]) -> Path:
        """The image of the kernel with these edits, built unless the cache has it. Raises UsageError if an
        edit does not find its place, KernelError if the kernel does not build.
        """
        texts = self.edited(edits)
        final = cache_dir("kernels", "variants") / self.key(edits)[:24]
        if not (final / "image").exists():
            with self.changed(texts) as image:
                keep_image(image, final)
        return hold(final / "image")

    @contextlib.contextmanager
    def changed(self, texts: Mapping[str, str]) -> Iterator[Path]:
        """Build with these texts of files, by their paths in the tree; new ones may lie in new folders. The
        image is there as long as the context. Raises KernelError if it does not build.
        """
        log = self.path / "make.log"
        log.unlink(missing_ok=True)
        try:
            for name, text in texts.items():
                self._replace(name, text)
            make_again(self.path / "source", self.path / "out", self.flavour, self._jobs, log)
            yield self.path / "out" / self.flavour.image
        finally:
            self._restore()

    def _replace(self, name: str, text: str) -> None:
        """Change a file of the tree, or add one; the original is kept first, in case this process is killed.
        One that was added stays: no makefile names it.
        """
        file = self.path / "source" / name
        if file.exists():
            original = self.path / "originals" / name
            original.parent.mkdir(parents=True, exist_ok=True)
            copy_atomically(self._file(name), original)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, text.encode(errors="surrogateescape"))

    def _restore(self) -> None:
        """Undo the edits of a variant, also of one whose process was killed. The files get a new time: make
        has to compile them again.
        """
        originals = self.path / "originals"
        for original in sorted(p for p in originals.rglob("*") if p.is_file() and p.suffix != ".part"):
            write_atomically(self.path / "source" / original.relative_to(originals), original.read_bytes())
        shutil.rmtree(originals, ignore_errors=True)


@contextlib.contextmanager
def kept_tree(
    source: str,
    machine: str,
    flavour: Flavour,
    jobs: int,
    say: Callable[[str], None],
    check: Check | None = None,
) -> Iterator[KeptTree]:
    """The kept tree of a source package, built for a machine with the current configuration; made on first
    use, and again once apt has another version, which takes minutes. One process at a time has it: others
    wait. `check` sees the source before anything is built.

    Raises what `check` raises; UsageError for a directory, InUse if another process has it for longer than
    WAIT_S, EnvironmentLacks for a missing tool, KernelError if the source cannot be downloaded or does not
    build.
    """
    if "/" in source:
        raise UsageError(
            f"{source} is a directory, and a tree that is edited has to be a copy", "name a source package"
        )
    if not _PACKAGE.fullmatch(source):  # a word of apt's command, which a run directory may have named
        raise UsageError(f"{source!r} is no name of a package", "name a source package")
    need_tools(flavour)
    key = key_for(source, flavour, release_of_package(source))
    path = cache_dir("kernels", "trees") / f"{machine}-{source}-{key[:12]}"
    path.mkdir(exist_ok=True)
    hold(path)
    with exclusive(path / "lock", f"the kept tree of {source}", say, WAIT_S):
        if not _is_current(path, source, say):
            try:
                _make_tree(path, source, machine, flavour, jobs, say, check)
            except EnvironmentLacks as e:
                if built_as(path) is None:
                    raise
                say(f"the kept tree stays as it is: {e.what}")
        kept = KeptTree(path, flavour, jobs)
        if check:
            check(kept)
        yield kept


def _is_current(path: Path, source: str, say: Callable[[str], None]) -> bool:
    """Whether a tree is there, of the version of its package that would be downloaded now."""
    built = built_as(path)
    if built is None:
        return False
    offered = offered_version(source)
    if offered in ("", built.source_version):
        return True
    say(f"the kept tree is of {source} {built.source_version}, and apt has {offered}: it is made anew")
    return False


def _make_tree(
    path: Path,
    source: str,
    machine: str,
    flavour: Flavour,
    jobs: int,
    say: Callable[[str], None],
    check: Check | None,
) -> None:
    log = path / "make.log"
    for folder in path.glob("unpacking-*"):
        shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=path, prefix="unpacking-") as scratch:
        with source_tree(source, flavour, Path(scratch), say) as (tree, version, identity):
            tree.rename(unpacked := Path(scratch, "source"))
        if check:
            check(SourceTree(Path(scratch), f"{source} {version}"))
        (path / "built.json").unlink(missing_ok=True)  # what was there before is given up from here on
        for folder in (path / "source", path / "out", path / "originals"):
            shutil.rmtree(folder, ignore_errors=True)
        log.unlink(missing_ok=True)
        unpacked.rename(path / "source")
        say(f"building the unmodified kernel: minutes, once; what make prints goes to {log}")
        (path / "out").mkdir()
        make_kernel(path / "source", path / "out", flavour, jobs, log)
    release = (path / "out/include/config/kernel.release").read_text().strip()
    strip_image(path / "out" / flavour.image, path / "image")
    key = key_for(identity, flavour, release_of_package(source))
    built = Built(machine, source, version, release, key)
    write_atomically(path / "built.json", msgspec.json.encode(built))


def keep_image(image: Path, final: Path) -> None:
    """Move a build's result into the cache, atomically."""
    with keeping(image, final) as part:
        seal(part / "image")


@contextlib.contextmanager
def keeping(image: Path, final: Path) -> Iterator[Path]:
    """A folder with a build's image, which is `final` in the cache once the block has added the rest."""
    with tempfile.TemporaryDirectory(dir=final.parent, prefix="keeping-") as scratch:
        part = Path(scratch) / "kept"
        part.mkdir()
        strip_image(image, part / "image")
        yield part
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)


def strip_image(image: Path, to: Path) -> None:
    """Copy a kernel without what only debuggers read."""
    done = subprocess.run(["strip", "-g", "-o", to, image], capture_output=True, text=True, check=False)
    if done.returncode:
        raise KernelError(f"strip {image} failed: {done.stderr.strip()}", "is the build complete?")
