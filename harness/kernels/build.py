"""Build kernels for judging, each for one machine, from a distribution's source package or from a user's
tree. The cache keeps them by a hash of what they were built from.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks, KernelError, UsageError
from harness.host.archive import Archive, unpack
from harness.host.cache import cache_dir, hold, scratch_folder
from harness.host.files import file_hash, json_or_none, write_atomically
from harness.host.locks import exclusive
from harness.host.processes import run_group
from harness.host.progress import silent, telling
from harness.host.resources import resource
from harness.kernels.edits import Edit, apply_edit
from harness.kernels.find import Kernel
from harness.kernels.git import is_top, plain_environment, read_only_git, unwatched
from harness.kernels.packages import digest_of
from harness.kernels.pins import Pin, pins

TOOLS = {
    "make": "make",
    "gcc": "gcc",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "lz4": "lz4",
}
_STEERS = re.compile(
    r"(CROSS_COMPILE|LLVM|KBUILD|KCONFIG|HOST|INSTALL_|GNUMAKE|MAKE|MFLAGS).*"
    r"|K\w*FLAGS|LOCALVERSION|(SUB)?ARCH|LANGUAGE|LC_\w+"
)
"""Variables that make or kbuild takes from the environment (Documentation/kbuild/kbuild.rst): a kernel is
known by its source and configuration, and these would make it another one, or none.
"""
_ROOM_BYTES = 64 << 20
"""With less free space, a build that ends with an error may have had too little."""
_OF_HOST = re.compile(
    # not in a source line that a compiler shows: `   32 | #define ENOSPC 28 /* No space left on device */`
    r"^(?![ \d+]*\|).*(?:No space left on device|Disk quota exceeded|Read-only file system|Input/output error"
    r"|Cannot allocate memory|virtual memory exhausted|out of memory allocating|Too many open files"
    r"|Resource temporarily unavailable|Killed signal|terminated with signal|\] (?:Killed|Terminated)).*$"
    # a program that PATH does not have; one of the tree itself would have a folder before its name
    r"|^(?:/bin/)?(?:ba)?sh: (?:line )?(?:\d+: )?[\w.+-]+: (?:command )?not found$"
    r"|^make.*: [\w.+-]+: No such file or directory$",
    re.MULTILINE,
)
"""What says that the host failed a build, and not the source."""
_OF_SOURCE = re.compile(r"\.[ch]:\d+:\d+: error: ")
_OF_KCONFIG = re.compile(r"^\S*Kconfig[\w.-]*:\d+: ?\S.*$", re.MULTILINE)
"""What says that a source's own Kconfig files are at fault."""
_SOUND = "powercut-sound"
"""A file of a build folder: this boot of the host has seen all of it made."""
Release = tuple[int, int]
"""The first two numbers of a kernel's release."""
UNKNOWN: Release = (0, 0)
"""Of a source that does not tell."""
_ESSENTIAL = ("CONFIG_DM_LOG_WRITES", "CONFIG_VIRTIO_BLK")
_OPTION = re.compile(r"(#.*)?|CONFIG_\w+=\S.*", re.ASCII)
_NOT_SET = re.compile(r"# (CONFIG_\w+) is not set", re.ASCII)


class BuildFails(KernelError):
    """Make ended with an error: the fault is that of the source, and not of what is around it. `what` has the
    end of what make printed.
    """


class Addition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files of our own for a source package's tree: all of `folder` (below `vms/`) go to `to`, and `line`
    goes to the end of `named_in`, which so names them to make.
    """

    folder: str
    to: str
    named_in: str
    line: str


class ReleaseEdit(Edit, frozen=True, forbid_unknown_fields=True):
    """An edit of the sources of some releases: from `since` on, and before `before`."""

    since: Release = UNKNOWN
    before: Release = (1000, 0)


class Flavour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a kernel for one machine is built: `make ARCH=arch target`, from `fragments` of `kernels/`.
    `image`: where the result is in the build folder. `headers`: files of /usr/include that it needs, each
    with its Debian package. `edits`: of a source package's tree and of what is added to it, for speed or for
    what a seed decides; a user's own tree is built as it is. `hits`: what a kernel needs beside
    `addition` to note what it runs (`harness.kernels.instrumented`).
    """

    arch: str
    target: str
    image: str
    fragments: tuple[str, ...]
    headers: tuple[tuple[str, str], ...] = ()
    edits: tuple[ReleaseEdit, ...] = ()
    addition: Addition | None = None
    hits: Addition | None = None


class Built(msgspec.Struct, frozen=True):
    """`built.json` beside an image. `source_version`: of the source package; empty for a user's tree. `key`:
    the hash of what it was built from. `tree`: the user's tree and its commit, for people.
    """

    machine: str
    source: str
    source_version: str
    release: str
    key: str
    tree: str = ""


def with_options(flavour: Flavour, config: Sequence[str]) -> Flavour:
    """The flavour with these configuration fragments of the user's as well, given by absolute paths. Raises
    UsageError for a line that sets no option.
    """
    for path in config:
        for number, line in enumerate(Path(path).read_text(errors="replace").splitlines(), 1):
            if not _OPTION.fullmatch(line.strip()):
                raise UsageError(
                    f"{path}, line {number}: {line[:60]!r} sets no option of a kernel",
                    "a line is CONFIG_KASAN=y, # CONFIG_KASAN is not set, or a comment",
                )
    return msgspec.structs.replace(flavour, fragments=(*flavour.fragments, *config))


def title_of(kernel: Kernel) -> str:
    """What a kernel is called: one that was built from a user's tree by that, and not by its place in the
    cache.
    """
    built = built_as(kernel.image.parent)
    return built.tree if built and built.tree else kernel.name


def built_as(folder: Path) -> Built | None:
    """What `built.json` in a folder says; None without it, and where it is damaged, as the power cut of a
    host leaves it: then nothing was built there.
    """
    return json_or_none(folder / "built.json", Built)


def built_kernels() -> list[tuple[Path, Built]]:
    """The images in the cache with their descriptions, newest last."""
    files = sorted(cache_dir("kernels").glob("built-*/built.json"), key=lambda p: p.stat().st_mtime)
    return [(p.parent / "image", built) for p in files if (built := built_as(p.parent))]


def matching_kernel(machine: str, flavour: Flavour, package_version: str) -> Path | None:
    """The cached kernel for a machine that was built from the same source as a distribution's kernel, with
    the current configuration; None if there is none. An older configuration may lack a file system. One with
    another `addition`, or none, lacks nothing but speed: it is taken if there is no better one.
    """
    found = _of_version(machine, package_version)
    current = [p for p, b in found if b.key == key_of(b, flavour)]
    plain = [p for p, b in found if b.key == key_of(b, msgspec.structs.replace(flavour, addition=None))]
    return next(iter([*current[-1:], *plain[-1:]]), None)


def outdated_kernel(machine: str, flavour: Flavour, package_version: str) -> bool:
    """Whether the cache has kernels of that source, but none with the current configuration."""
    found = _of_version(machine, package_version)
    return bool(found) and matching_kernel(machine, flavour, package_version) is None


def _of_version(machine: str, package_version: str) -> list[tuple[Path, Built]]:
    if not package_version:
        return []
    return [
        (p, b) for p, b in built_kernels() if b.machine == machine and b.source_version == package_version
    ]


def key_of(built: Built, flavour: Flavour) -> str:
    """The key that a build of the same package has with the current configuration."""
    identity = _package_identity(built.source, built.source_version)
    return key_for(identity, flavour, release_of_package(built.source))


def _package_identity(source: str, version: str) -> str:
    return f"{source} {version}"


def build(
    source: str, machine: str, flavour: Flavour, jobs: int, log: Path, say: Callable[[str], None]
) -> tuple[Path, Built]:
    """Build for a machine from `source`: a source package's name (linux-source-6.12) or a user's tree.
    Returns the image, from the cache if it has been built before. One process builds at a time.

    The output of make goes to `log`. Raises EnvironmentLacks for a missing tool, InUse if another build does
    not end, KernelError if the source cannot be downloaded, is not clean, or does not build.
    """
    need_tools(flavour)
    with (
        exclusive(cache_dir("kernels") / "building.lock", "the kernels in the cache", say),
        scratch_folder(cache_dir("kernels"), "building-") as scratch,
        source_tree(source, flavour, Path(scratch), say) as (tree, version, identity),
    ):
        key = key_for(identity, flavour, release_of_package(source))
        for image, built in built_kernels():
            if built.key == key:
                say(f"built already: {image}")
                return image, built
        if made := _of_kept_tree(key):
            folder, built = made
            say(f"built already, with its tree: {folder}")
            return _keep(folder / "image", folder / "out/.config", Path(scratch), built), built
        say(f"building for {machine} with {jobs} jobs; what make prints goes to {log}")
        log.unlink(missing_ok=True)
        out = Path(scratch) / "out"
        out.mkdir()
        make_kernel(tree, out, flavour, jobs, log, say)
        release = (out / "include/config/kernel.release").read_text().strip()
        built = Built(machine, source, version, release, key, "" if version else _described(tree))
        return _keep(out / flavour.image, out / ".config", Path(scratch), built), built


def need_tools(flavour: Flavour) -> None:
    """Raises EnvironmentLacks if this host lacks what it takes to build such a kernel in the cache."""
    if found := _splits(cache := cache_dir("kernels")):
        raise EnvironmentLacks(
            f"{cache}: make builds no kernel in a folder with {found!r} in its path",
            "name another cache: export POWERCUT_CACHE=DIR",
        )
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    missing += [package for name, package in flavour.headers if not Path("/usr/include", name).exists()]
    if missing:
        packages = " ".join(missing)
        raise EnvironmentLacks(f"building a kernel needs {packages}", f"run: apt-get install {packages}")


def _splits(folder: Path) -> str:
    """The letter of a path at which kbuild's makefiles would split it; empty if there is none."""
    found = re.search(r"[\s:]", str(folder))
    return found[0] if found else ""


def _of_kept_tree(key: str) -> tuple[Path, Built] | None:
    """The kept tree (`harness.kernels.variants`) whose unmodified kernel has this key, and what that is."""
    for file in sorted(cache_dir("kernels", "trees").glob("*/built.json")):
        built = built_as(file.parent)
        if built and built.key == key:
            return hold(file.parent), built
    return None


def _keep(image: Path, config: Path, scratch: Path, built: Built) -> Path:
    """Copy the build into the cache, atomically. Returns the image."""
    final = cache_dir("kernels") / f"built-{built.machine}-{built.release}-{built.key[:12]}"
    part = scratch / "keep"
    part.mkdir()
    shutil.copy2(image, part / "image")
    shutil.copy2(config, part / "config")
    write_atomically(part / "built.json", msgspec.json.encode(built))
    seal(part / "image")
    shutil.rmtree(final, ignore_errors=True)
    part.rename(final)
    return final / "image"


def seal(image: Path) -> None:
    """Keep the digest of a kernel in the cache beside it."""
    write_atomically(digest_of(image), file_hash(image))


def need_as_built(image: Path) -> None:
    """Hold a kernel of the cache against the digest that was kept with it; one that has none is given it now.
    A kernel from elsewhere is the user's own. Raises KernelError for one that has changed: what it says of a
    file system, nobody can say again.
    """
    if cache_dir("kernels").resolve() not in image.resolve().parents:
        return
    if not digest_of(image).is_file():
        with contextlib.suppress(OSError):  # a cache that this user may only read
            seal(image)
        return
    kept, now = digest_of(image).read_text().strip(), file_hash(image)
    if kept != now:
        raise KernelError(
            f"{image} is not what was built: its SHA-256 was {kept[:12]} and is {now[:12]}",
            f"remove {image.parent} and run the command again: the kernel is then built anew, or told how to",
        )


def make_kernel(
    tree: Path, out: Path, flavour: Flavour, jobs: int, log: Path, say: Callable[[str], None] = silent
) -> None:
    """Configure and build a source tree in the empty folder `out`. Every few seconds `say` is told how many
    files are compiled. Raises BuildFails with the end of the log if it does not build, EnvironmentLacks if
    this host is at fault, and KernelError if make was killed or the configuration lacks what was asked for.
    """
    configure(tree, out, flavour, log)
    with telling(lambda: compiled(out), say):
        make_again(tree, out, flavour, jobs, log)


def compiled(out: Path, since: float = 0.0) -> str:
    """How many files make has compiled since a time; how many there will be, only make knows."""
    made = (Path(where, name) for where, _, names in os.walk(out) for name in names if name.endswith(".o"))
    count = sum(lstat.st_mtime >= since for file in made if (lstat := _stat(file)) is not None)
    return f"{count:,} files compiled"


def _stat(file: Path) -> os.stat_result | None:
    """None for a file that make has removed meanwhile."""
    try:
        return file.lstat()
    except OSError:
        return None


def configure(tree: Path, out: Path, flavour: Flavour, log: Path, *, may_lack: bool = False) -> None:
    """Give the folder `out` the configuration of a flavour, whatever it had. `may_lack`: the tree need not
    take the user's own options. Raises as `make_kernel`.
    """
    new = not any(out.iterdir())
    fragments = list(map(_fragment, flavour.fragments))
    common = _make(tree, out, flavour)
    merge = [str(tree / "scripts/kconfig/merge_config.sh"), "-m", "-O", str(out), str(out / ".config")]
    steps = [
        [*common, "allnoconfig"],
        [*merge, *map(str, fragments)],
        [*common, "olddefconfig"],
    ]
    try:
        _run(steps, log, out)
    except BuildFails as e:
        if not _OF_KCONFIG.search(e.what):
            raise KernelError(e.what, e.next_step) from e
        raise
    if new:
        (out / _SOUND).write_text(_boot())
    _check_options(out, [_fragment(name) for name in flavour.fragments if not _is_own(name)])
    if may_lack:
        return
    if lost := lost_options(out, flavour):
        raise KernelError(
            f"{tree} does not take {', '.join(lost)}",
            "see in its Kconfig files how each is spelled and what it depends on, and name that as well",
        )


def make_again(
    tree: Path,
    out: Path,
    flavour: Flavour,
    jobs: int,
    log: Path,
    anew: Callable[[], None] | None = None,
) -> None:
    """Build what changed since `out` was last built. Raises as `make_kernel`.

    A make that was killed, or a power cut of this host, may have left half of an object or an empty one,
    which make takes for made. Where that may be so and the build fails, all is built once more, in an empty
    folder that `anew` configures, before the source is blamed; without `anew`, configured as it was.
    """
    sound = out / _SOUND
    was = sound.read_text() if sound.exists() else ""
    sound.unlink(missing_ok=True)  # until make has ended by itself
    try:
        _run([[*_make(tree, out, flavour), f"-j{jobs}", flavour.target]], log, out)
    except BuildFails:
        if was != _boot():
            shutil.rmtree(out)
            out.mkdir()
            log.unlink(missing_ok=True)
            (anew or (lambda: configure(tree, out, flavour, log)))()
            make_again(tree, out, flavour, jobs, log)
            return
        sound.write_text(was)
        raise
    sound.write_text(_boot())


def _boot() -> str:
    """Names the time since this host was started (random(4))."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _make(tree: Path, out: Path, flavour: Flavour) -> list[str]:
    return ["make", "-s", "-C", str(tree), f"O={out}", f"ARCH={flavour.arch}"]


def _environment() -> dict[str, str]:
    """For make: ours, without what would steer it, and with messages as `_OF_HOST` reads them."""
    kept = {name: value for name, value in plain_environment().items() if not _STEERS.fullmatch(name)}
    return kept | {"LANG": "C", "LC_ALL": "C"}  # kbuild takes LC_ALL away


def _run(steps: Sequence[Sequence[str]], log: Path, out: Path) -> None:
    """Run programs of a build one after the other; all output goes to `log`."""
    for step in steps:
        with log.open("ab") as f:
            begun = f.tell()
            code = run_group(step, f, _environment())
        if code:
            said = log.read_bytes()[begun:].decode(errors="replace")
            raise _fault(f"{' '.join(step[-2:])} failed with {code}", code, said, log, out)


def _fault(failed: str, code: int, said: str, log: Path, out: Path) -> KernelError | EnvironmentLacks:
    """Whose fault it is that a step of a build failed. A signal says nothing of the source."""
    whole = f"the whole log is {log}"
    if host := _OF_HOST.search(said):
        return EnvironmentLacks(
            f"{failed}: {host[0].strip()}", f"this host is at fault, not the source; {whole}"
        )
    of_source = _OF_SOURCE.search(said)  # an assembler's input is in the temporary folder, and no source
    for place in (out, *([] if of_source else [Path(tempfile.gettempdir())])):
        if (free := shutil.disk_usage(place).free) < _ROOM_BYTES:
            return EnvironmentLacks(
                f"{failed}, with {free >> 20} MiB free at {place}", f"free some space, and try again; {whole}"
            )
    tail = "\n".join(said.splitlines()[-8:])
    return (BuildFails if code > 0 else KernelError)(f"{failed}:\n{tail}", whole)


def _options(lines: Iterable[str]) -> dict[str, str]:
    """What lines of a configuration set each option to, the last one first heard: `n` for one that is not
    set.
    """
    found: dict[str, str] = {}
    for line in map(str.strip, lines):
        name, _, value = line.partition("=")
        if unset := _NOT_SET.fullmatch(line):
            found[unset[1]] = "n"
        elif name.startswith("CONFIG_"):
            found[name] = value if value.startswith('"') else re.sub(r"\s+#.*", "", value)
    return found


def lost_options(out: Path, flavour: Flavour) -> list[str]:
    """The user's own options that a configured folder has otherwise: a kernel without them is not the one
    that was asked about.
    """
    return _lost(out, [Path(name) for name in flavour.fragments if _is_own(name)])


def _lost(out: Path, fragments: Sequence[Path]) -> list[str]:
    """The options of fragments that a configuration has otherwise. A kernel without modules makes y of m."""
    have = _options((out / ".config").read_text(errors="replace").splitlines()) if fragments else {}
    wanted = _options(line for file in fragments for line in file.read_text(errors="replace").splitlines())
    return [
        f"{name}={value}"
        for name, value in wanted.items()
        if have.get(name, "n") not in ((value, "y") if value == "m" else (value,))
    ]


def _check_options(out: Path, fragments: Sequence[Path]) -> None:
    """Raises KernelError if an essential option is missing: olddefconfig drops options that a tree lacks."""
    if essential := [line for line in _lost(out, fragments) if line.split("=")[0] in _ESSENTIAL]:
        raise KernelError(
            f"the tree's configuration lacks {', '.join(essential)}", "is it a kernel of 4.1 or later?"
        )


@contextmanager
def source_tree(
    source: str, flavour: Flavour, scratch: Path, say: Callable[[str], None]
) -> Iterator[tuple[Path, str, str]]:
    """The source tree of a package, unpacked in `scratch` and with the flavour's edits, or a user's own; the
    version of its package (or empty); and a string that identifies its contents.
    """
    if Path(source).is_dir():
        tree = Path(source).resolve()
        if not (tree / "Kconfig").exists():
            raise KernelError(
                f"{tree} is no kernel tree (no Kconfig in it)", "name the top folder of a kernel's source"
            )
        if found := _splits(tree):
            raise UsageError(
                f"{tree}: make builds no kernel of a folder with {found!r} in its path", "rename that folder"
            )
        if (tree / ".config").exists():
            raise KernelError(f"{tree} was built in place", f"run: make -C {tree} mrproper")
        yield tree, "", _identity(tree)
        return
    version = unpack_source(source, scratch, say)
    if flavour.addition:
        _add(flavour.addition, scratch / "tree", say)
    for edit in edits_for(flavour, release_of_package(source)):
        _apply(edit, scratch / "tree", say)
    yield scratch / "tree", version, _package_identity(source, version)


def unpack_source(source: str, scratch: Path, say: Callable[[str], None], folder: str = "") -> str:
    """Unpack a source package, or one folder of it, in `scratch`/tree; returns the package's version. Raises
    KernelError if it cannot be had, or is none.
    """
    say(f"downloading {source}")
    deb = _source_archive(source).download(source, scratch)
    version = unpack(deb, scratch / "deb")
    archive = next((scratch / "deb/usr/src").glob("*.tar.xz"), None)
    if archive is None:
        raise KernelError(
            f"the package {source} {version} holds no kernel source (usr/src/*.tar.xz)",
            "name a package like linux-source-6.12, or the top folder of a kernel tree",
        )
    (scratch / "tree").mkdir()
    say(f"unpacking {archive.name}, {version}")
    wanted = ["--wildcards", f"*/{folder}/*"] if folder else []
    subprocess.run(
        ["tar", "xf", archive, "-C", scratch / "tree", "--strip-components=1", *wanted], check=True
    )
    return version


def _apply(edit: Edit, tree: Path, say: Callable[[str], None]) -> None:
    """Edit a file of an unpacked tree. One that does not fit this source is left out: no test needs it."""
    file = tree / edit.file
    try:
        text = apply_edit(file.read_text(errors="surrogateescape"), edit)
    except (OSError, UsageError) as e:
        say(f"built without one of our edits, for speed or for schedules: {e}")
        return
    file.write_text(text, errors="surrogateescape")


def _add(addition: Addition, tree: Path, say: Callable[[str], None]) -> None:
    """Add files to an unpacked tree, unless it lacks the one that has to name them."""
    names = tree / addition.named_in
    if not names.is_file():
        say(
            f"built without {addition.to}, which makes judging faster: this source has no {addition.named_in}"
        )
        return
    (tree / addition.to).mkdir(parents=True)
    for file in added_files(addition):
        shutil.copy(file, tree / addition.to)
    with names.open("a") as f:
        f.write(f"{addition.line}\n")


def added_files(addition: Addition) -> list[Path]:
    """What an addition brings into a source tree."""
    return sorted(resource("vms", addition.folder).iterdir())


def source_packages(pin: Pin) -> set[str]:
    """`NAME=VERSION` of the source packages from which a pin's kernels can be built."""
    if not pin.source:
        return set()
    return {found for a in pin.archives for found in a.offered(f"{re.escape(pin.source)}=.*")}


def _archives_of(source: str) -> list[Archive]:
    """Where a source package may be: in this machine's own apt sources, or where its series is."""
    return [Archive(), *(a for p in pins().values() if p.source == source for a in p.archives[1:])]


def offered_version(source: str) -> str:
    """The version of a source package that would be downloaded now, by the lists that are here; empty if they
    do not say.
    """
    try:
        return next(filter(None, (archive.version_of(source) for archive in _archives_of(source))), "")
    except EnvironmentLacks:
        return ""


def _source_archive(source: str) -> Archive:
    """Where a source package is: in this machine's own apt sources, else in a suite that the pin of its
    series names. Raises KernelError if none has it.
    """
    archives = _archives_of(source)
    for archive in archives:
        if archive.offered(re.escape(source)):
            return archive
    places = " and ".join(map(str, archives))
    raise KernelError(
        f"there is no package {source} in {places}",
        "name a package like linux-source-6.12, or the top folder of a kernel tree; for new lists, "
        + archives[-1].how_to_refresh,
    )


def _identity(tree: Path) -> str:
    """Identifies the contents of a user's tree: its commit, a hash of the changes to it and of the size and
    time of each file that git does not know or look at or, without git, of every file's.
    """
    head = read_only_git(tree, "rev-parse", "--verify", "--quiet", "HEAD") if is_top(tree) else None
    if head is None or head.returncode:
        return hashlib.sha256(_stamps(tree, tree)).hexdigest()
    plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--full-index", "--ignore-submodules=none")
    changed = _asked(tree, "diff", *plain, "HEAD").encode(errors="surrogateescape")
    digest = hashlib.sha256(changed)
    unknown = _asked(tree, "ls-files", "-o", "--exclude-standard", "-z").split("\0")
    for name in [*filter(None, unknown), *unwatched(tree)]:
        digest.update(_stamps(tree / name, tree))
    return head.stdout.strip() + digest.hexdigest()


def _asked(tree: Path, *words: str) -> str:
    done = read_only_git(tree, *words)
    if done.returncode:
        raise KernelError(f"git {words[0]}: {done.stderr.strip()}", f"is {tree} a whole git tree?")
    return done.stdout


def _stamps(path: Path, tree: Path) -> bytes:
    """A line for a file, or for each one of a folder: its place in the tree, its size and its time."""
    lines = []
    for file in _files(path):
        info = file.lstat()
        lines.append(f"{file.relative_to(tree)} {info.st_size} {info.st_mtime_ns}\n")
    return "".join(lines).encode(errors="surrogateescape")


def _files(path: Path) -> Iterator[Path]:
    """A file itself; of a folder, as a repository within the tree or a link to one that is elsewhere, all."""
    if not path.is_dir():
        yield path
        return
    for folder, _, names in sorted(os.walk(path)):
        yield from (Path(folder, name) for name in sorted(names))


def _described(tree: Path) -> str:
    """`~/linux (v6.12-3-g1f2e3d4c5b6a-dirty)`; without git, the tree alone."""
    shown = f"~/{tree.relative_to(Path.home())}" if tree.is_relative_to(Path.home()) else str(tree)
    said = read_only_git(tree, "describe", "--always", "--dirty") if is_top(tree) else None
    return shown if said is None or said.returncode else f"{shown} ({said.stdout.strip()})"


def _is_own(name: str) -> bool:
    """Whether a fragment is a user's own, by its whole path, and not a file of `kernels/`."""
    return Path(name).is_absolute()


def _fragment(name: str) -> Path:
    return Path(name) if _is_own(name) else resource("kernels", name)


def release_of_package(source: str) -> Release:
    """The release of a source package by its name, `linux-source-7.3` or longer; UNKNOWN of a user's tree."""
    found = re.match(r"linux-source-(\d+)\.(\d+)", source, re.ASCII)
    return (int(found[1]), int(found[2])) if found else UNKNOWN


def edits_for(flavour: Flavour, release: Release) -> tuple[Edit, ...]:
    """The flavour's edits of a release's source."""
    return tuple(
        Edit(e.file, e.function, e.pattern, e.replacement)
        for e in flavour.edits
        if e.since <= release < e.before
    )


def key_for(identity: str, flavour: Flavour, release: Release = UNKNOWN) -> str:
    """The hash of a source, of the current configuration, of the flavour's files and of its edits for that
    release: an edit for another one makes no other kernel.
    """
    fragments = b"".join(_fragment(name).read_bytes() for name in flavour.fragments)
    edits = edits_for(flavour, release)
    digest = hashlib.sha256(identity.encode() + fragments + (msgspec.json.encode(edits) if edits else b""))
    if flavour.addition:
        digest.update(msgspec.json.encode(flavour.addition))
        for file in added_files(flavour.addition):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
