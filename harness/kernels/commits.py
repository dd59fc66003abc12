"""Kernels of the commits of a git tree, each built from the one before: only what differs is compiled.

The user's tree is read and never written: objects of ours, such as a commit of changes that were not
committed yet, go into a repository of our own that borrows the user's objects (gitrepository-layout(5),
`objects/info/alternates`). In the cache:

```
kernels/commits/<machine>-<repository>-<configuration>/
    lock            held by the process that builds, or that uses the work tree
    opening         held by the process that makes the repository
    git/            our repository: objects, and nothing else of ours
    source/ out/    its work tree, at the commit that was built last, and the build
    configured      which Kconfig files the configuration of `out` was made of
kernels/variants/<key>/image
kernels/instrumented/<key>/         a commit's kernel with marks on changed lines
```

A commit is built with the edits and files that make judging faster (`Flavour`): they are a commit of ours on
top, so a switch to another commit changes the files in which the two differ and no others, and make compiles
these.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import operator
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email import policy
from email.parser import BytesHeaderParser
from functools import partial, reduce
from pathlib import Path
from types import MappingProxyType

from harness.errors import EnvironmentLacks, InUse, KernelError, NothingToAsk, UsageError
from harness.host.cache import cache_dir, hold
from harness.host.files import write_atomically
from harness.host.locks import exclusive
from harness.host.progress import telling
from harness.host.text import first_few, one_line
from harness.kernels.build import (
    UNKNOWN,
    Addition,
    BuildFails,
    Built,
    Flavour,
    Release,
    added_files,
    built_as,
    compiled,
    configure,
    edits_for,
    key_for,
    lost_options,
    make_again,
    need_tools,
)
from harness.kernels.edits import apply_edit
from harness.kernels.git import plain_environment, read_only_git, unwatched
from harness.kernels.instrumented import Points, hits_of, keep_noting
from harness.kernels.variants import WAIT_S, keep_image

UNCOMMITTED = "changes that are not committed"
"""The subject of the commit of ours that holds them."""
NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_WHO = {f"GIT_{who}_{what}": "powercut" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
_WHEN = {f"GIT_{who}_DATE": "2000-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")}
"""So that equal contents are equal commits."""
_ALONE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}
_PLAIN = {
    "core.attributesFile": "/dev/null",
    # Whatever goes on in the background would hold our lock.
    "gc.autoDetach": "false",
    "maintenance.autoDetach": "false",
    # Git takes an object or an index that a power cut of this host left empty for the whole one.
    "core.fsync": "all",
}
"""For our repository: the user's settings are not for commits that nobody sees."""
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
"""For a repository of SHA-1."""
_EXTENDED = "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = {}\n"
"""For one of another hash."""
_SHA1 = "sha1"
_FETCHING = r"^(remote|url|http|credential|protocol|ssh)\..*$|^core\.sshcommand$"
"""Settings by which git fetches."""
_NO_ROOM = re.compile(r"No space left on device|Out of diskspace|Disk quota exceeded")
_CONFIGURING = (":(glob)**/Kconfig*", "scripts")
"""The files of a commit that decide what it makes of our fragments."""
_MOST_SAID = 400
"""Letters of what git complains of."""
_MAILBOX = "name a mailbox as git format-patch --stdout writes it"
_NO_MAILS = "Patch format detection failed"
"""What git says of a diff alone, as git diff writes it."""
_ANSWER = re.compile(r"(re|aw|sv|vs|wg|fwd?|antw|odp)(\[\d+\])?\s*:", re.IGNORECASE)
"""What the subject of an answer, or of a mail that was handed on, begins with."""
_CHANGES = re.compile(rb"^(diff --git |--- a/|@@ -\d)", re.MULTILINE)
_TAGS = re.compile(r"\s*(?:\[[^]]*\]\s*)+")
"""What a subject begins with, as `[PATCH v2 1/3]`."""
_SAFE = re.compile(r"git config --global --add safe\.directory \S.*")
"""What git says to do about a tree of another user."""
_RELEASE = re.compile(r"^VERSION = (\d+)\nPATCHLEVEL = (\d+)$", re.ASCII | re.MULTILINE)
_ERROR = re.compile(
    r"^.*\berror:.*$|^.*undefined reference to.*$|^\S*Kconfig[\w.-]*:\d+: .*$|^make.*\*\*\* .*$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit by its full name, with the first line of its message."""

    id: str
    subject: str

    @property
    def short(self) -> str:
        return self.id[:12]

    def __str__(self) -> str:
        return self.subject if self.subject == UNCOMMITTED else f"{self.short} ({self.subject})"


@dataclass(frozen=True, slots=True)
class CommitRange:
    """What is asked about: `commits` from the oldest on, on top of `base`. `changed`: the files in which the
    last one and `base` differ. `brought`: commits that the base is not below, so they may show what it has
    mended since. Those of a branch that the base was merged into are not asked about, and come with the first
    of `commits`; those of a branch that is merged into the base are, and are among `commits` as well.
    """

    base: Revision
    commits: tuple[Revision, ...]
    changed: tuple[str, ...]
    brought: tuple[Revision, ...] = ()

    @property
    def head(self) -> Revision:
        return self.commits[-1]


class CommitTree:
    """The kept build of a git tree's commits: see `commit_tree`."""

    def __init__(
        self, tree: Path, path: Path, flavour: Flavour, jobs: int, say: Callable[[str], None]
    ) -> None:
        self.tree, self.path, self.flavour = tree, path, flavour
        self._jobs, self._say = jobs, say
        self._surroundings = _ALONE | _WHO | _promised(tree)
        self._renamed: dict[tuple[str, str], dict[str, str]] = {}
        self._store, self._hash = _store_of(tree), _hash_of(tree)

    @contextlib.contextmanager
    def _alone(self, say: Callable[[str], None], wait_s: float = WAIT_S) -> Iterator[None]:
        """Hold the build and the work tree: one process at a time is at work there. Mends what an earlier one
        left. Raises InUse if another process has them for longer than `wait_s`.
        """
        with exclusive(self.path / "lock", f"the kept build of {self.tree}", say, wait_s):
            with self._opening():
                left = _removed_leftovers(self.path / "git")
                _borrow(self.path / "git", self._store, self._hash)
            if left:
                self._clean()
            yield

    def _opening(self) -> contextlib.AbstractContextManager[None]:
        return exclusive(self.path / "opening", f"the repository for {self.tree}", self._say, WAIT_S)

    def open(self) -> None:
        """Make our repository, and mend it, unless a process is at work: that one has mended it."""
        try:
            with self._alone(lambda _: None, wait_s=0):
                pass
        except InUse:
            with self._opening():
                _borrow(self.path / "git", self._store, self._hash)

    # --- commits ------------------------------------------------------------------------------

    def series(self, asked: str = "", base: str = "", mbox: Path | None = None) -> CommitRange:
        """The series that was asked for: `BASE..HEAD`, or `base` up to what the tree holds now, with changes
        that are not committed as a last commit; without either, from where the branch left its upstream, or
        its last commit. `mbox`: patches that are applied to the base, or to HEAD. Of a base that has gone its
        own way since, the commit where the two parted is taken, and that is said.

        Raises UsageError for what names no commit or does not apply, NothingToAsk for what holds none.
        """
        first, dots, last = asked.partition("..")
        if asked and (not dots or "..." in asked):
            raise UsageError(
                f"{asked!r} is no range of commits", "name one as BASE..HEAD, or only its base with --base"
            )
        if asked and mbox:
            raise UsageError(
                f"{asked} and --mbox both say what the patch is",
                f"leave one out; --base {first or 'HEAD'} says what the mailbox is applied to",
            )
        if asked and base:
            raise UsageError(f"{asked} and --base both say where it begins", "name one")
        if mbox:
            start = self._named(base or "HEAD")
            with self._alone(self._say):
                return self._range(start, self._applied(start, mbox))
        if asked:
            return self._range(self._named(first or "HEAD"), self._named(last or "HEAD"), is_typed=True)
        head = self._named("HEAD")
        end = self._uncommitted(head) or head
        self._say_unknown()
        start = self._named(base) if base else self._default_base(head, end)
        return self._range(start, end)

    def _named(self, revision: str) -> str:
        done = self._git_there(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
        if done.returncode:
            raise UsageError(
                f"{self.tree} has no commit {revision}",
                self._deeper or f"see: git -C {shlex.quote(str(self.tree))} log --oneline",
            )
        return done.stdout.strip()

    @property
    def _deeper(self) -> str:
        """How a tree whose history is cut off gets more of it; empty for one that has all."""
        if self._git_there("rev-parse", "--is-shallow-repository").stdout.strip() != "true":
            return ""
        fetched = f"git -C {shlex.quote(str(self.tree))} fetch --unshallow"
        return f"its history is cut off (a shallow clone): {fetched}"

    def _default_base(self, head: str, end: str) -> str:
        upstream = self._git_there("merge-base", "HEAD", "@{upstream}")
        if upstream.returncode == 0 and upstream.stdout.strip() != end:
            return upstream.stdout.strip()
        if end != head:
            return head
        below = self._git_there("rev-parse", "--verify", "--quiet", "HEAD~1")
        if below.returncode:
            raise UsageError(
                f"{self.tree} has no commit below {head[:12]}, its last one",
                self._deeper or "change something, or commit it: a patch is on top of a commit",
            )
        return below.stdout.strip()

    def _range(self, base: str, head: str, *, is_typed: bool = False) -> CommitRange:
        line = self._listed("--reverse", "--first-parent", f"{base}..{head}")
        if not line and base != head:  # so it is where a push has taken commits away
            if is_typed:
                raise NothingToAsk(
                    f"{head[:12]} is below {base[:12]}: the range runs the other way",
                    f"name the older commit first: {head[:12]}..{base[:12]}",
                )
            raise NothingToAsk(
                f"{head[:12]} has no commit that {base[:12]} lacks", "name a base that is below your patch"
            )
        if not line:
            raise NothingToAsk(
                f"there is no commit from {base[:12]} to {head[:12]}",
                "name the base of your patch with --base",
            )
        start = self._below(base, line[-1])
        commits, left = self._tried(base, line)
        on_top = self._on_top(start.id, head)
        brought = (*left, *(c for c in commits if c.id not in on_top))
        # Where a file came from is changed as well: that it is gone there is part of the patch.
        changed = self._git("diff", "--name-only", "--no-renames", "-z", start.id, head).split("\0")[:-1]
        if not changed:
            raise NothingToAsk(
                f"{line[-1]} has the same files as {start}", "name the base of your patch with --base"
            )
        return CommitRange(start, commits, tuple(changed), brought)

    def _tried(
        self, base: str, line: Sequence[Revision]
    ) -> tuple[tuple[Revision, ...], tuple[Revision, ...]]:
        """Of the line of commits up to a head, those to try, and those that a merge of the base leaves out.
        Of one merge into the base, as in the checkout of a pull request, also those of each branch that it
        merges.
        """
        head = line[-1]
        _, *parents = self._git("rev-list", "--parents", "-1", head.id).split()
        if len(line) == 1 and len(parents) > 1:
            branches = [self._listed("--reverse", "--first-parent", f"{base}..{p}") for p in parents[1:]]
            of_branches = [self._tried(base, branch) for branch in branches if branch]
            # One that several branches begin with stands where the first of them has it.
            tried = dict.fromkeys(c for some, _ in of_branches for c in some)
            left = dict.fromkeys(c for _, some in of_branches for c in some if c not in tried)
            return (*tried, head), tuple(left)
        on_top = self._on_top(self._git("merge-base", base, head.id).strip(), head.id)
        return tuple(c for c in line if c.id in on_top), tuple(c for c in line if c.id not in on_top)

    def _on_top(self, below: str, head: str) -> set[str]:
        """The commits up to a head that have another below them."""
        return set(self._git("rev-list", "--ancestry-path", f"{below}..{head}").split())

    def below(self, series: CommitRange) -> list[int]:
        """For each commit of a series, which of the others are in its history: a bit for each place, for
        sets take as much room as the square of a long series.
        """
        if len(series.commits) == 1:
            return [0]
        places = {commit.id: 1 << n for n, commit in enumerate(series.commits)}
        listed = ("rev-list", "--topo-order", "--reverse", "--parents", f"{series.base.id}..{series.head.id}")
        found = dict[str, int]()
        for line in self._git(*listed).splitlines():
            commit, *parents = line.split()
            of_parents = (of.get(parent, 0) for parent in parents for of in (found, places))
            found[commit] = reduce(operator.or_, of_parents, 0)
        return [found[commit.id] for commit in series.commits]

    def _listed(self, *words: str) -> tuple[Revision, ...]:
        """Commits by their names and subjects. Some characters of a subject end a line for Python."""
        records = self._git("log", "-z", "--format=%H %s", *words).split("\0")
        pairs = (record.split(" ", 1) for record in records if record)
        return tuple(Revision(name, " ".join(subject.split())) for name, subject in pairs)

    def _below(self, base: str, head: Revision) -> Revision:
        """The base, if the head is on top of it, else where the two parted. The patch did not take away what
        the base got since: it never had that.
        """
        try:
            parted = self._git("merge-base", base, head.id).strip()
        except KernelError as e:
            raise UsageError(
                f"{base[:12]} and {head.short} have no commit in common",
                f"name a base below {head.short}; for a tree that is not whole: git fetch --unshallow",
            ) from e
        [asked] = self._listed("-1", base)
        if parted == base:
            return asked
        [start] = self._listed("-1", parted)
        self._say(f"{asked} is not below {head}: the base is {start}, where the two parted")
        return start

    def _uncommitted(self, head: str) -> str:
        """A commit of ours with the changes to tracked files; empty if there are none."""
        changed = self._git_there("diff", "--name-only", "--no-renames", "-z", "HEAD").stdout
        gone = self._git_there("diff", "--name-only", "--no-renames", "-z", "--diff-filter=D", "HEAD").stdout
        there = set(filter(None, changed.split("\0"))) - set(gone.split("\0"))
        there.update(unwatched(self.tree))
        with self._index() as index:
            self._git("read-tree", head, env=index)
            given = "".join(f"{name}\0" for name in sorted(there))
            # First, for a folder may be a file now, or a link to where files of these names are.
            for taken, names in ((["--force-remove"], gone), (["--add", "--remove", "--replace"], given)):
                self._git("update-index", *taken, "-z", "--stdin", env=index, given=names, at=self.tree)
            tree = self._git("write-tree", env=index).strip()
        if tree == self._git("rev-parse", f"{head}^{{tree}}").strip():
            return ""
        return self._committed(tree, head, UNCOMMITTED)

    def _say_unknown(self) -> None:
        """New files of the user's that git was not told of are in no commit, and so not asked about."""
        files = self._git_there("ls-files", "-o", "--exclude-standard", "-z").stdout.split("\0")
        shown, left = first_few(list(filter(None, files)), 3)
        if shown:
            more = f" and {left:,} more" if left else ""
            self._say(
                f"not asked about, as git does not know of it: {one_line(', '.join(shown))}{more}; "
                "what is part of the patch becomes so by git add"
            )

    def _applied(self, base: str, mbox: Path) -> str:
        """The last commit once all patches of a file, which may be one of gzip, are applied to `base`. Mails
        without a patch, as a cover letter, and answers, as those of a reviewer who would rather have another
        one, are passed over; a patch that lost its changes is refused.
        """
        with _unpacked(mbox) as file:  # first: one that cannot be read needs no work tree
            return self._applied_file(base, file, mbox)

    def _applied_file(self, base: str, file: Path, mbox: Path) -> str:
        """The same of one that is unpacked."""
        source = self._work_tree()
        self._switch(base)
        try:
            held = self._apply_all(file, mbox, source)
        except KernelError as e:
            if _NO_MAILS in e.what:
                raise UsageError(
                    f"{mbox} has no mails: a patch comes with its author and subject", _MAILBOX
                ) from e
            raise UsageError(
                f"{mbox} does not apply to {base[:12]}: {e.what}",
                "name the commit that it is made for with --base",
            ) from e
        finally:  # where all is applied, there is nothing to abort
            abort = [*self._ours(source), "am", "--abort"]
            subprocess.run(abort, env=self._environment(), capture_output=True, check=False)
        if not held:
            raise UsageError(f"{mbox} holds no patch", _MAILBOX)
        head = self._git("rev-parse", "HEAD", at=source).strip()
        if head == base:
            raise UsageError(
                f"the patches of {mbox} are in {base[:12]} already", "name the commit below them with --base"
            )
        return head

    def _apply_all(self, file: Path, mbox: Path, source: Path) -> bool:
        """Apply the patches of a mailbox; whether it holds one. Raises UsageError for one that lost its
        changes, KernelError for one that does not apply.
        """
        at, passed, last = self.path / "git/rebase-apply", set[int](), -1
        mails = self._patches(file)
        words = ["--quiet", "--3way", *map(str, mails)]
        while mails:
            try:
                self._git("am", *words, at=source)
                return len(passed) != last
            except KernelError:
                patch = at / "patch"
                if not patch.exists() or patch.stat().st_size:
                    raise
                number, last = (int((at / name).read_text()) for name in ("next", "last"))
                if number in passed:  # git could not pass it over
                    raise
            _need_no_patch(at / f"{number:04}", mbox)
            passed.add(number)
            words = ["--skip"]
        return False

    def _patches(self, file: Path) -> list[Path]:
        """A file of patches as files that `git am` takes: of a mailbox each mail, answers left out. What they
        would have changed is said: nobody has it as a part of the series.
        """
        if not file.read_bytes().lstrip().startswith(b"From "):
            return [file]
        self._git("mailsplit", "--keep-cr", f"-o{file.parent}", str(file))
        mails = {mail: _subject(mail) for mail in sorted(file.parent.iterdir()) if mail != file}
        answers = [mail for mail, subject in mails.items() if _ANSWER.match(subject)]
        bringing = [mails[mail] for mail in answers if _CHANGES.search(mail.read_bytes())]
        shown, left = first_few(bringing, 3)
        if shown:
            more = f" and {left:,} more" if left else ""
            self._say(f"not applied, as answers are no part of a series: {one_line('; '.join(shown))}{more}")
        return [mail for mail in mails if mail not in answers]

    def knows(self, commit: str) -> bool:
        """Whether a commit of the user's, or of ours, is there."""
        try:
            self._git("cat-file", "-e", f"{commit}^{{commit}}")
        except KernelError:
            return False
        return True

    def diff(self, base: str, head: str, file: str) -> str:
        """How two commits differ in a file, without lines around; with the function that each place is in.
        One that was renamed is compared with what it was, and differs in nothing by its old name.
        """
        if (base, head) not in self._renamed:
            words = ("diff", "--name-status", "-M", "--diff-filter=R", "-z", base, head)
            told = self._git(*words).split("\0")[:-1]
            self._renamed[base, head] = dict(zip(told[2::3], told[1::3], strict=True))
        renamed = self._renamed[base, head]
        if file in renamed.values():
            return ""
        plain = ("--no-color", "--no-ext-diff", "--no-textconv", "-U0", "--inter-hunk-context=0", "-M")
        names = [renamed[file], file] if file in renamed else [file]
        return self._git("diff", *plain, base, head, "--", *names)

    def text(self, commit: str, file: str) -> str:
        """A file of a commit. Raises KernelError if there is none."""
        return self._git("show", f"{commit}:{file}")

    def has(self, commit: str, file: str) -> bool:
        return bool(self._git("ls-tree", commit, "--", file).strip())

    def with_text(self, commit: Revision, file: str, text: str, subject: str) -> Revision:
        """A commit of ours on top of one, in which a file has another text."""
        blob = self._git("hash-object", "-w", "--stdin", given=text).strip()
        tree = self._tree_with(commit.id, {file: blob})
        return Revision(self._committed(tree, commit.id, subject), subject)

    # --- kernels ------------------------------------------------------------------------------

    def key(self, commit: str) -> str:
        """Identifies the kernel of a commit: its files, and the configuration."""
        tree = self._git("rev-parse", f"{commit}^{{tree}}").strip()
        return key_for(f"git tree {tree}", self.flavour, self._release(commit))

    def _release(self, commit: str) -> Release:
        """By the Makefile of a commit."""
        if not self.has(commit, "Makefile"):
            return UNKNOWN
        found = _RELEASE.search(self.text(commit, "Makefile"))
        return (int(found[1]), int(found[2])) if found else UNKNOWN

    def kernel(self, commit: Revision) -> Path:
        """The image of a commit's kernel, built unless the cache has it. Raises BuildFails, with the first
        error that make told, if it does not build, and KernelError if something else is at fault.
        """
        final = cache_dir("kernels", "variants") / self.key(commit.id)[:24]
        with self._to_build((final / "image").exists) as log:
            if log:
                self._say(f"building the kernel of {commit}; what make prints goes to {log}")
                self._build(commit, log)
                keep_image(self.path / "out" / self.flavour.image, final)
        return hold(final / "image")

    @contextlib.contextmanager
    def _to_build(self, is_there: Callable[[], bool]) -> Iterator[Path | None]:
        """Where make's words go, while this process alone builds; None if a kernel is there, which another
        process may have built in the meantime.
        """
        if is_there():
            yield None
            return
        with self._alone(self._say):
            log = self.path / "make.log"
            log.unlink(missing_ok=True)
            yield None if is_there() else log

    def noting_kernel(self, commit: Revision, texts: Mapping[str, str], marks: int) -> Path:
        """The image of a commit's kernel in which files have these texts, with `marks` marks in them: calls
        of `powercut_ran` that set the byte of their number in the file of hits. Built unless it is cached.
        Raises KernelError if it does not build, UsageError for a machine whose kernels note nothing.
        """
        hits = hits_of(self.flavour)
        digest = hashlib.sha256(
            f"{self.key(commit.id)} {hits.line} {sorted(texts.items())}".encode(errors="replace")
        )
        for file in added_files(hits):
            digest.update(file.name.encode() + file.read_bytes())
        final = cache_dir("kernels", "instrumented") / digest.hexdigest()[:24]
        with self._to_build(lambda: built_as(final) is not None) as log:
            if log:
                self._say(f"building the kernel of {commit} with marks on changed lines")
                self._build(commit, log, texts, hits)
                built = Built(self.flavour.arch, str(commit), "", "", digest.hexdigest())
                out = self.path / "out"
                points = Points(max(marks, 1), ())
                keep_noting(out / self.flavour.image, out / ".config", built, points, final)
        return hold(final / "image")

    def _build(
        self, commit: Revision, log: Path, texts: Mapping[str, str] = NO_TEXTS, more: Addition | None = None
    ) -> None:
        """`texts`: of files that have another one than in the commit; `more`: a further addition."""
        source, begun = self._work_tree(), time.time()
        self._switch(self._with_ours(commit.id, texts, more))
        try:
            self._configure(source, log)
            with telling(lambda: compiled(self.path / "out", begun), self._say):
                anew = partial(self._configure, source, log, anew=True)
                make_again(source, self.path / "out", self.flavour, self._jobs, log, anew)
        except BuildFails as e:
            first = _ERROR.search(log.read_text(errors="replace"))
            what = first[0].strip() if first else e.what
            raise BuildFails(
                f"{commit} does not build: {what}",
                f"the whole log is {log}; see whether the commit before it builds",
            ) from e
        if lost := lost_options(self.path / "out", self.flavour):
            self._say(f"{commit} does not take {', '.join(lost)}: its kernel is without")

    def _configure(self, source: Path, log: Path, *, anew: bool = False) -> None:
        """Give `out` the configuration of the commit in `source`, unless it has it (or `anew`): that of our
        fragments and the commit's own Kconfig files. An option that one commit does not know, as the base of
        a patch that brings it, is thus not lost for the commits that are built after it.
        """
        out, given = self.path / "out", self.path / "configured"
        before = given.read_text(errors="replace") if given.exists() else None
        wanted = self._git("ls-files", "-s", "-z", "--", *_CONFIGURING, at=source)
        digest = hashlib.sha256(wanted.encode(errors="surrogateescape")).hexdigest()
        if before == digest and (out / ".config").exists() and not anew:
            return
        out.mkdir(exist_ok=True)
        if before is not None:
            write_atomically(given, "")  # until it is done
        configure(source, out, self.flavour, log, may_lack=before is not None)
        write_atomically(given, digest)

    def _with_ours(self, commit: str, given: Mapping[str, str], more: Addition | None) -> str:
        """A commit of ours on top, with the flavour's edits and files, those that fit, and what is given."""
        additions = [a for a in (self.flavour.addition, more) if a and self.has(commit, a.named_in)]
        blobs = {
            name: self._git("hash-object", "-w", "--stdin", given=text).strip()
            for name, text in self._edited(commit, given, additions).items()
        }
        return self._committed(self._tree_with(commit, blobs), commit, "for judging")

    def _tree_with(self, commit: str, blobs: Mapping[str, str]) -> str:
        """The tree of a commit with other files."""
        with self._index() as index:
            self._git("read-tree", commit, env=index)
            entries = "".join(f"100644 {blob}\t{name}\0" for name, blob in blobs.items())
            self._git("update-index", "-z", "--index-info", env=index, given=entries)
            return self._git("write-tree", env=index).strip()

    def _edited(
        self, commit: str, given: Mapping[str, str], additions: Sequence[Addition]
    ) -> Mapping[str, str]:
        """The text of each file that changes: the given texts, the added files and their names, and our edits
        of all these.
        """
        texts = dict(given)
        for addition in additions:
            before = texts.get(addition.named_in) or self.text(commit, addition.named_in)
            texts[addition.named_in] = f"{before}{addition.line}\n"
            texts |= {f"{addition.to}/{file.name}": file.read_text() for file in added_files(addition)}
        for edit in edits_for(self.flavour, self._release(commit)):
            try:
                texts[edit.file] = apply_edit(texts.get(edit.file) or self.text(commit, edit.file), edit)
            except (KernelError, UsageError) as e:
                self._say(f"built without one of our edits, for speed or for schedules: {e.args[0]}")
        return texts

    # --- git ----------------------------------------------------------------------------------

    def _work_tree(self) -> Path:
        """Where sources are compiled; its folder is made, and its contents come with the first switch."""
        (self.path / "source").mkdir(exist_ok=True)
        return self.path / "source"

    def _clean(self) -> None:
        """Remove files of a switch that was killed: git does not know that it wrote them, and so the next
        switch would leave them among the sources.
        """
        self._git("clean", "-ffdxq", at=self._work_tree())

    def _switch(self, commit: str) -> None:
        self._git("checkout", "--quiet", "--force", "--detach", commit, at=self._work_tree())

    def _committed(self, tree: str, parent: str, subject: str) -> str:
        return self._git("commit-tree", tree, "-p", parent, "-m", subject, env=_WHEN).strip()

    @contextlib.contextmanager
    def _index(self) -> Iterator[dict[str, str]]:
        """The environment for an index that no other process has."""
        with tempfile.TemporaryDirectory() as folder:
            yield {"GIT_INDEX_FILE": f"{folder}/index"}

    def _ours(self, at: Path | None) -> list[str]:
        where = (
            [f"--git-dir={self.path / 'git'}", f"--work-tree={at}"]
            if at
            else [f"--git-dir={self.path / 'git'}"]
        )
        settings = [word for name, value in _PLAIN.items() for word in ("-c", f"{name}={value}")]
        return ["git", *where, *(["-C", str(at)] if at else []), *settings]

    def _git(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        given: str | None = None,
        at: Path | None = None,
    ) -> str:
        """What git prints, in our repository. Raises KernelError with what it complains of. If this process
        is killed, git may go on: until it ends, it holds the lock of `commit_tree`, as make does.
        """
        done = subprocess.run(
            [*self._ours(at), *words],
            env=self._environment() | dict(env or {}),
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
            close_fds=False,
        )
        if done.returncode:
            said = (done.stderr.strip() or done.stdout).splitlines()
            told = " ".join(" ".join(line for line in said if not line.startswith("hint:")).split())
            told = told[-_MOST_SAID:]
            raise self._fault(f"git {words[0]}: {told or f'exit code {done.returncode}'}")
        return done.stdout

    def _fault(self, what: str) -> KernelError | EnvironmentLacks:
        """What to do about that which git complains of."""
        if _NO_ROOM.search(what):
            return EnvironmentLacks(what, f"free some space at {self.path}")
        if "promisor remote" in what:
            return EnvironmentLacks(
                what, f"{self.tree} is a partial clone, and its remote has the rest: check the network"
            )
        return KernelError(
            what, f"is {self.tree} a whole git tree of Linux? If so, remove {self.path}: it is made anew"
        )

    def _environment(self) -> dict[str, str]:
        return plain_environment() | self._surroundings

    def _git_there(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Ask the user's repository; these commands only read."""
        return read_only_git(self.tree, *words)


@contextlib.contextmanager
def commit_tree(
    tree: Path, machine: str, flavour: Flavour, jobs: int, say: Callable[[str], None]
) -> Iterator[CommitTree]:
    """The kept build of a user's git tree. One process at a time builds in it, or applies a mailbox, while
    others wait: these raise InUse if another process is at it for longer than WAIT_S.

    Raises UsageError for a folder that is no git tree of Linux, EnvironmentLacks for a missing tool.
    """
    root = _top(tree)
    need_tools(flavour)
    known_by = f"{_store_of(root)} {key_for('', flavour)}"
    if (by := _hash_of(root)) != _SHA1:  # a tree that was there before at this path may have had another
        known_by += f" {by}"
    name = hashlib.sha256(os.fsencode(known_by)).hexdigest()[:12]
    path = cache_dir("kernels", "commits") / f"{machine}-{name}"
    path.mkdir(exist_ok=True)
    hold(path)
    kept = CommitTree(root, path, flavour, jobs, say)
    kept.open()
    yield kept


def _store_of(root: Path) -> Path:
    """Where the repository of a tree is."""
    found = read_only_git(root, "rev-parse", "--path-format=absolute", "--git-common-dir").stdout
    return Path(found.rstrip("\n"))


def _hash_of(root: Path) -> str:
    """By which hash a repository names its objects (git-init(1), --object-format)."""
    return read_only_git(root, "rev-parse", "--show-object-format").stdout.strip() or _SHA1


def _top(tree: Path) -> Path:
    """The top folder of the git tree of Linux that a folder is in. Raises as `commit_tree`."""
    if shutil.which("git") is None:
        raise EnvironmentLacks("commits are read with git, which is not there", "run: apt-get install git")
    top = read_only_git(tree, "rev-parse", "--show-toplevel")
    root, said = Path(top.stdout.rstrip("\n")), " ".join(top.stderr.split())
    if safe := _SAFE.search(top.stderr):
        raise UsageError(f"git reads no tree of another user: {tree}", f"if you trust it: {safe[0]}")
    if top.returncode and "not a git repository" not in said:
        raise UsageError(f"git does not read {tree}: {said}", "mend that, or name another tree")
    if top.returncode or not (root / "Kconfig").exists():
        raise UsageError(
            f"{tree} is no git tree of Linux",
            "go into one, or name it; a source tree becomes one by: git init && git add -A -f && git commit",
        )
    return root


def _promised(tree: Path) -> dict[str, str]:
    """The environment in which our git fetches what a partial clone (git-clone(1), --filter) has not fetched
    yet, into our repository; empty for a tree that has all of its objects.
    """
    if read_only_git(tree, "config", "--get-regexp", r"^remote\..*\.promisor$").returncode:
        return {}
    given = {}
    listed = read_only_git(tree, "config", "-z", "--get-regexp", _FETCHING).stdout
    for number, (name, _, value) in enumerate(entry.partition("\n") for entry in listed.split("\0")[:-1]):
        is_here = name.endswith("url") and (tree / value).is_dir()  # as `../linux`
        given[f"GIT_CONFIG_KEY_{number}"] = name
        given[f"GIT_CONFIG_VALUE_{number}"] = str(tree / value) if is_here else value
    return given | {"GIT_CONFIG_COUNT": str(len(given) // 2)}


@contextlib.contextmanager
def _unpacked(mbox: Path) -> Iterator[Path]:
    """A mailbox, as git takes it, in a folder of its own: by a path, for git tells its kinds apart by their
    beginning, which it does not read from a pipe. Raises UsageError if it cannot be read.
    """
    if mbox.is_dir():
        files = shlex.quote(str(mbox))
        raise UsageError(f"{mbox} is a folder", f"make one mailbox of it: cat {files}/*.patch >series.mbox")
    try:
        data = mbox.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as e:
        raise UsageError(f"{mbox} cannot be read: {e}", _MAILBOX) from e
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder, "mailbox")
        unpacked.write_bytes(data)
        yield unpacked


def _subject(mail: Path) -> str:
    return str(BytesHeaderParser(policy=policy.default).parsebytes(mail.read_bytes())["Subject"] or "")


def _need_no_patch(mail: Path, mbox: Path) -> None:
    """Raises UsageError for a mail that should have brought a patch: without it, the rest of a series is
    another one. Answers and cover letters bring none.
    """
    subject = _subject(mail)
    tags = found[0] if (found := _TAGS.match(subject)) else ""
    number = re.search(r"\b(\d+)/\d+", tags)
    if int(number[1]) if number else "PATCH" in tags.upper():
        raise UsageError(f"{one_line(subject)}: this patch of {mbox} has no changes", _MAILBOX)


def _removed_leftovers(ours: Path) -> bool:
    """Remove what a killed git, or a power cut of this host, left in our repository, where git then refuses
    all further work; whether what is in the work tree may be another thing than git knows. Whoever holds our
    lock knows that no git is at work there.
    """
    head, index, patches = ours / "HEAD", ours / "index", ours / "rebase-apply"
    locks = list(ours.glob("*.lock"))
    damaged = [
        file for file in (ours / "objects").glob("[0-9a-f][0-9a-f]/[0-9a-f]*") if not _begins(file, b"x")
    ]
    spoiled = index.exists() and not _is_whole(index)
    left = bool(locks) or patches.exists() or spoiled
    if damaged or not re.match(rb"ref: |[0-9a-f]{40}", head.read_bytes() if head.exists() else b""):
        head.unlink(missing_ok=True)  # it may name a commit that is gone
    for file in (*damaged, *([index] if spoiled else [])):
        file.unlink()
    for lock in locks:
        lock.unlink(missing_ok=True)
    shutil.rmtree(patches, ignore_errors=True)
    return left


def _begins(file: Path, letters: bytes) -> bool:
    """As a loose object of git does, by the header of zlib (RFC 1950)."""
    with file.open("rb") as f:
        return f.read(len(letters)) == letters


def _is_whole(index: Path) -> bool:
    """Whether the hash at the end of git's index is that of the rest (gitformat-index(5))."""
    data = index.read_bytes()
    kinds = (hashlib.sha1(usedforsecurity=False), hashlib.sha256())
    for kind in kinds:
        kind.update(data[: -kind.digest_size])
    return any(kind.digest() == data[-kind.digest_size :] for kind in kinds)


def _borrow(ours: Path, theirs: Path, by: str) -> None:
    """Our repository, with the user's objects, which are named by a hash."""
    config, wanted = ours / "config", _CONFIG if by == _SHA1 else _EXTENDED.format(by)
    there = config.exists() and config.read_bytes() == wanted.encode()
    if not there or not all((ours / name).exists() for name in ("HEAD", "refs", "objects")):
        config.unlink(missing_ok=True)
        done = subprocess.run(
            ["git", "init", "--quiet", "--bare", f"--object-format={by}", str(ours)],
            env=plain_environment() | _ALONE, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise KernelError(f"git init: {done.stderr.strip()}", f"is there room in the cache, at {ours}?")
        write_atomically(config, wanted)
    (ours / "objects/info").mkdir(parents=True, exist_ok=True)
    (ours / "info").mkdir(exist_ok=True)
    _keep(ours / "info/attributes", b"*.[ch] diff=cpp\n")  # a label does not begin a function
    _keep(ours / "objects/info/alternates", os.fsencode(f"{theirs / 'objects'}\n"))
    if (theirs / "shallow").exists():
        _keep(ours / "shallow", (theirs / "shallow").read_bytes())
    else:
        (ours / "shallow").unlink(missing_ok=True)


def _keep(file: Path, data: bytes) -> None:
    """Give a file these contents at once: a git of another process may read it."""
    if not file.exists() or file.read_bytes() != data:
        write_atomically(file, data)
