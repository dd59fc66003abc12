"""Packages of the distribution, of this machine's release and of others.

Packages of other releases come from the archive that this machine already uses: Powercut takes its address
and keyring from the machine's own apt sources. Their lists and downloads live in Powercut's cache, so neither
root nor a change to the system is needed. Nothing is installed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentLacks
from harness.host.cache import cache_dir, hold
from harness.host.console import SafeConsole
from harness.host.files import replacement

_LIST_TIMEOUT_S = 60
_DOWNLOAD_TIMEOUT_S = (
    6 * 3600
)  # a source of 150 MB over 8 KB/s; of a connection that stalls, apt itself tells
_RELEASES = ("stable", "oldstable", "testing", "unstable", "sid")

# Hooks of the system's configuration clean the system's caches and notify desktops; images of containers
# keep no index of packages, so that each question takes a second. What is installed here is no suite's.
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::State::lists "{lists}";
Dir::State::status "/dev/null";
Dir::Cache "{cache}";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Etc::sourcelist "{sources}";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A suite of an archive. `keyring`: the file or the keys that sign it; empty: those that apt trusts."""

    uri: str
    suite: str
    components: tuple[str, ...]
    keyring: str = ""

    @property
    def is_release(self) -> bool:
        """Whether it is a whole release, by its name: not its updates, not its backports."""
        return "main" in self.components and self.suite in (_codename(), *_RELEASES)

    def stanza(self, suite: str) -> str:
        """The apt source of that suite in the same archive: see sources.list(5). `SUITE/COMPONENT`: of that
        component, and not of main.
        """
        keys = f"\n {self.keyring}" if "\n" in self.keyring else f" {self.keyring}"
        signed = f"Signed-By:{keys}\n" if self.keyring else ""
        name, _, component = suite.partition("/")
        return (
            f"Types: deb\nURIs: {self.uri}\nSuites: {name}\nComponents: {component or 'main'}\n"
            f"Targets: Packages\n{signed}"
        )


_console = SafeConsole(stderr=True, soft_wrap=True, markup=False, emoji=False)


@dataclass(frozen=True, slots=True)
class Archive:
    """What apt can get: with this machine's own sources (`suite` empty), or from one suite of the same
    archive.
    """

    suite: str = ""

    def __str__(self) -> str:
        return f"suite {self.suite}" if self.suite else "this machine's apt sources"

    @property
    def listed(self) -> bool:
        """Whether its package lists are here."""
        return not self.suite or any(self._lists.glob("*_Packages*"))

    def offered(self, pattern: str) -> set[str]:
        """The packages whose name matches a regular expression; one with `=` in it is compared with
        `NAME=VERSION`, and that is returned. Downloads package lists if there are none yet; raises
        EnvironmentLacks if that fails.
        """
        if not shutil.which("apt-cache"):
            return set()
        if not self.listed:
            self.refresh()
        of_name, _, of_version = pattern.partition("=")
        names = self._ask("pkgnames", _prefix(of_name)).split()
        named = {name for name in names if re.fullmatch(of_name, name)}
        if not of_version or not named:
            return named
        rows = [line.split("|") for line in self._ask("madison", *sorted(named)).splitlines()]
        versions = {f"{row[0].strip()}={row[1].strip()}" for row in rows if len(row) > 1}
        return {found for found in versions if re.fullmatch(pattern, found)}

    def version_of(self, package: str) -> str:
        """The version of a package that `download` gets by its name; empty if there is none, or no list."""
        if not shutil.which("apt-cache") or not self.listed:
            return ""
        found = re.search(r"(?m)^Version: (\S+)", self._ask("show", "--no-all-versions", package))
        return found[1] if found else ""

    def download(self, package: str, folder: Path) -> Path:
        """Download `NAME` or `NAME=VERSION` into a folder. Returns the file. Raises EnvironmentLacks with
        apt's message.
        """
        if not shutil.which("apt-get"):
            raise EnvironmentLacks("apt-get is needed to fetch Debian packages", "run: make setup")
        before = set(folder.glob("*.deb"))
        got = self._apt("apt-get", "download", "-q", package, folder=folder, timeout_s=_DOWNLOAD_TIMEOUT_S)
        new = set(folder.glob("*.deb")) - before
        if got.returncode or not new:
            raise EnvironmentLacks(
                f"apt-get download {package} failed: {_complaint(got)}",
                NO_NETWORK if _is_offline(got) else self.how_to_refresh,
            )
        return new.pop()

    @property
    def how_to_refresh(self) -> str:
        """What a user does to get new lists."""
        return "run: powercut kernel update" if self.suite else "run: apt-get update"

    def refresh(self) -> None:
        """Download its package lists; those of the machine's own sources are left alone. Raises
        EnvironmentLacks if the archive lacks the suite or cannot be reached.
        """
        if not self.suite:
            return
        if not shutil.which("apt-get"):
            raise EnvironmentLacks("apt-get is needed to read Debian's archive", "run: make setup")
        source = source_of(self.suite, list(machine_sources()))
        folder = hold(cache_dir("archive", self.suite))
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "archive.sources").write_text(source.stanza(self.suite))
            _console.say(f"downloading the package lists of {self}")
            done = self._apt("apt-get", "update", "-q", "--error-on=any", timeout_s=_DOWNLOAD_TIMEOUT_S)
        if done.returncode:
            raise _no_lists(self.suite, source, done)

    @property
    def _lists(self) -> Path:
        return cache_dir("archive", self.suite, "lists")

    def _ask(self, *words: str) -> str:
        """Output of apt-cache."""
        return self._apt("apt-cache", *words, timeout_s=_LIST_TIMEOUT_S).stdout

    def _apt(
        self, program: str, *words: str, timeout_s: float, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Raises EnvironmentLacks if it does not end."""
        try:
            return subprocess.run(
                [program, *self._options(), *words],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C.UTF-8"},
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as e:
            asked = shlex.join([program, *words])
            raise EnvironmentLacks(f"{asked} did not end within {timeout_s:,.0f} s", NO_NETWORK) from e

    def _options(self) -> list[str]:
        """Those that keep apt to folders of its own. For the machine's own sources, only the index of the
        system's lists is kept there: it is read as it is, and an ordinary user cannot renew it.
        """
        if not self.suite:
            index = cache_dir("archive") / "machine.bin"
            return ["-o", f"Dir::Cache::pkgcache={index}", "-o", "Dir::Cache::srcpkgcache="]
        folder = hold(cache_dir("archive", self.suite))
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        configuration, sources = folder / "apt.conf", folder / "archive.sources"
        text = _CONFIGURATION.format(lists=self._lists, cache=folder / "cache", sources=sources)
        if not configuration.exists() or configuration.read_text() != text:  # the cache may have moved
            with replacement(configuration) as file:
                file.write(text.encode())
        return ["-c", str(configuration)]


def unpack(deb: Path, folder: Path, field: str = "Version") -> str:
    """Unpack a package below a folder; returns one of its control fields."""
    subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
    asked = ["dpkg-deb", "-f", str(deb), field]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def listed_archives() -> list[Archive]:
    """The suites whose package lists are in the cache."""
    root = cache_dir("archive")
    suites = sorted(str(lists.parent.relative_to(root)) for lists in root.rglob("lists"))
    return [archive for archive in map(Archive, suites) if archive.listed]


def _prefix(pattern: str) -> str:
    """What every match of a regular expression begins with, as far as that is easily said."""
    heads = [re.sub(r"[^a-z-].*", "", part) for part in pattern.split("|")]
    return next((heads[0][:n] for n in range(len(heads[0]), 0, -1) if _all_begin(heads, heads[0][:n])), "")


def _all_begin(words: Sequence[str], prefix: str) -> bool:
    return all(word.startswith(prefix) for word in words)


def _complaint(done: subprocess.CompletedProcess[str]) -> str:
    """What apt says is wrong, in one line."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    errors = [line for line in lines if line.startswith(("E:", "Err:"))]
    return "; ".join(dict.fromkeys(errors[:3])) or (lines or ["nothing"])[-1]


NO_NETWORK = (
    "check the network; powercut fetch, on a host that has one, fills a cache that can be copied here"
)


def _is_offline(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether apt could not reach the archive: new package lists are out of reach as well."""
    signs = (
        "Could not resolve", "Temporary failure", "Could not connect", "Cannot initiate the connection",
        "Network is unreachable", "Connection timed out", "Connection refused", "No route to host",
    )  # fmt: skip
    return any(sign in done.stdout + done.stderr for sign in signs)


def _no_lists(suite: str, source: Source, done: subprocess.CompletedProcess[str]) -> EnvironmentLacks:
    said = _complaint(done)
    if "does not have a Release file" in done.stderr or re.search(r"\b404\b", done.stdout + done.stderr):
        return EnvironmentLacks(
            f"{source.uri}, the archive that this machine uses, has no suite {suite}",
            f"add a source that has it to /etc/apt/sources.list.d: deb URI-OF-A-FULL-MIRROR {suite} main",
        )
    if "NO_PUBKEY" in said or "not signed" in said:
        return EnvironmentLacks(
            f"this machine's keyring cannot verify the suite {suite}: {said}",
            "run: apt-get install --only-upgrade debian-archive-keyring",
        )
    return EnvironmentLacks(
        f"no package lists of the suite {suite}: {said}",
        NO_NETWORK if _is_offline(done) else "check that apt-get update works here",
    )


# --- this machine's sources ------------------------------------------------------------------


def source_of(suite: str, known: Sequence[Source]) -> Source:
    """The machine's source whose archive has a suite: one that names it, else the one of its own release
    (for NAME-security, of its security updates). Raises EnvironmentLacks if there is none.
    """
    named = [s for s in known if s.suite == suite and "main" in s.components]
    if suite.endswith("-security"):
        found = named or [s for s in known if s.suite.endswith("-security")]
    else:
        found = named or sorted((s for s in known if s.is_release), key=_foreign)
    if not found:
        raise EnvironmentLacks(
            f"none of this machine's apt sources leads to an archive with the suite {suite}",
            f"add one to /etc/apt/sources.list.d: deb URI-OF-A-FULL-MIRROR {suite} main",
        )
    return found[0]


def _foreign(source: Source) -> int:
    """Other archives use Debian's suite names too; their keys are their own."""
    return 0 if "debian-archive" in source.keyring else 1 if not source.keyring else 2


def _codename() -> str:
    path = Path("/etc/os-release")
    found = re.search(r"(?m)^VERSION_CODENAME=(\S+)", path.read_text()) if path.exists() else None
    return found[1].strip("\"'") if found else ""


def machine_sources(etc: Path = Path("/etc/apt")) -> Iterator[Source]:
    """Binary packages' sources of this machine, a suite each, in apt's order."""
    folder = etc / "sources.list.d"
    for path in [etc / "sources.list", *sorted([*folder.glob("*.list"), *folder.glob("*.sources")])]:
        if path.is_file():
            text = path.read_text(errors="replace")
            yield from (_stanzas if path.suffix == ".sources" else _lines)(text)


def _lines(text: str) -> Iterator[Source]:
    """The one-line format: `deb [option=value ...] URI SUITE COMPONENT...`."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]*)", line)
        if match:
            signed = re.search(r"signed-by=(\S+)", match[1] or "", re.IGNORECASE)
            yield Source(match[2], match[3], tuple(match[4].split()), signed[1] if signed else "")


def _stanzas(text: str) -> Iterator[Source]:
    """The deb822 format. Keys within `Signed-By` keep their lines."""
    text = re.sub(r"(?m)^#.*\n?", "", text)
    for stanza in re.split(r"\n\s*\n", text):
        fields = re.findall(r"(?m)^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza)
        field = {name.lower(): value.strip() for name, value in fields}
        if "deb" not in field.get("types", "").split() or field.get("enabled", "yes").lower() == "no":
            continue
        for uri in field.get("uris", "").split():
            for suite in field.get("suites", "").split():
                components = tuple(field.get("components", "").split())
                yield Source(uri, suite, components, _keyring(field.get("signed-by", "")))


def _keyring(written: str) -> str:
    """A key within a source stays folded, as deb822 wants it."""
    return re.sub(r"\n[ \t]*", "\n ", written)
