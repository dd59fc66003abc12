"""The root image of the guest with tools, and the headers of the kernel it runs.

Both are erofs images in the cache, built on first use. mmdebstrap builds the root image from the recipe in
`vms/rootfs/` and this machine's apt sources; it suits any kernel. `headers_image` builds the one that bcc
needs to compile for one kernel. Nothing here boots anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harness.errors import EnvironmentLacks, KernelError
from harness.filesystems.profiles import profiles
from harness.host.cache import cache_dir, hold, scratch_folder
from harness.host.locks import exclusive
from harness.host.progress import Progress
from harness.host.resources import resource
from harness.kernels.find import Kernel
from harness.kernels.headers import unpack_headers

STEP = "root image"
# What mmdebstrap or dpkg prints when a step begins, in order.
_STEPS = (
    "running apt-get update",
    "downloading packages",
    "extracting archives",
    "installing essential packages",
    "installing remaining packages",
    "running --customize-hook",
)
_TIMEOUT_S = 3600
_EPOCH = "1700000000"
"""SOURCE_DATE_EPOCH: two builds of the same packages have the same timestamps."""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`vms/rootfs/rootfs.toml`. `tools`: programs that the build needs, with their packages."""

    summary: str
    packages: list[str]
    exclude: list[str]
    tools: dict[str, str]


def recipe() -> Recipe:
    """What the root image contains: the packages that `vms/rootfs` names, and the mkfs of each file system
    that has a `[tools_image]` table.
    """
    written = msgspec.toml.decode(resource("vms", "rootfs", "rootfs.toml").read_bytes(), type=Recipe)
    makers = {p.mkfs.package for p in profiles().values() if p.tools_image}
    return msgspec.structs.replace(written, packages=[*written.packages, *sorted(makers)])


def recipe_hash() -> str:
    """A hash of everything that determines the image, except the versions of packages."""
    digest = hashlib.sha256(" ".join(recipe().packages).encode())
    for name in ("rootfs.toml", "customize.sh"):
        content = resource("vms", "rootfs", name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def cached_root() -> Path | None:
    """The root image of this recipe, if the cache has it."""
    image = cache_dir("rootfs") / f"root-{recipe_hash()}" / "root.erofs"
    return hold(image) if image.exists() else None


def root_image(progress: Progress, *, again: bool = False) -> Path:
    """The root image, built if the cache does not have it (or `again`); that takes minutes, once.

    Raises EnvironmentLacks if a program is missing, or if packages cannot be downloaded or installed; InUse
    if another process does not come to the end of building one.
    """
    found = cached_root()
    if found and not again:
        return found
    _need_tools(recipe().tools)
    final = cache_dir("rootfs") / f"root-{recipe_hash()}"
    with (
        exclusive(cache_dir() / "rootfs.lock", "the root images in the cache", progress.say),
        scratch_folder(cache_dir("rootfs"), "making-") as scratch,
    ):
        found = cached_root()
        if found and not again:  # the process that was waited for has made it
            return found
        part = Path(scratch) / "root"
        part.mkdir()
        progress.say(
            f"root image ({recipe().summary}): building it takes a few minutes, once; it is kept in {final}"
        )
        _mmdebstrap(part, progress)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
    image = hold(final / "root.erofs")
    progress.say(f"root image: {image.stat().st_size >> 20} MiB")
    return image


def _need_tools(tools: dict[str, str]) -> None:
    missing = sorted({package for program, package in tools.items() if not shutil.which(program)})
    if missing:
        names = " ".join(missing)
        raise EnvironmentLacks(f"the guest with tools needs {names}", f"run: apt-get install {names}")


def command(part: Path, sources: Sequence[Path]) -> list[str]:
    """The mmdebstrap line that leaves `root.erofs` and `packages.txt` in `part`.

    The suite is empty: `sources` say which packages there are, and where.
    """
    made = recipe()
    return [
        "mmdebstrap",
        "--verbose",
        "--variant=essential",
        "--format=null",
        "--skip=cleanup",  # leftovers are not part of the image
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in made.exclude),
        "--aptopt=APT::Install-Recommends false",
        f"--include={','.join(made.packages)}",
        # Through sh: an installed wheel does not keep file modes.
        f'--customize-hook=sh {shlex.quote(str(resource("vms", "rootfs", "customize.sh")))} "$1"',
        *(
            f"--customize-hook=download /{name} {shlex.quote(str(part / name))}"
            for name in ("root.erofs", "packages.txt")
        ),
        "",
        "-",
        *map(str, sources),
    ]


def apt_sources(etc: Path = Path("/etc/apt")) -> list[Path]:
    """The files that list this machine's package sources."""
    folder = etc / "sources.list.d"
    return [
        path
        for path in [etc / "sources.list", *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
        if path.is_file() and re.search(r"(?m)^\s*(deb\s|URIs:)", path.read_text(errors="replace"))
    ]


def _mmdebstrap(part: Path, progress: Progress) -> None:
    sources = apt_sources()
    if not sources:
        raise EnvironmentLacks(
            "apt has no sources on this machine (nothing in /etc/apt/sources.list and sources.list.d)",
            "give apt a source: see sources.list(5)",
        )
    progress.begin(STEP, len(_STEPS))
    process = subprocess.Popen(
        command(part, sources),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH, "LC_ALL": "C.UTF-8"},
    )
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    said: deque[str] = deque(maxlen=400)
    with process:
        try:
            step = 0
            for line in process.stdout:
                said.append(line)
                if step < len(_STEPS) and _STEPS[step] in line:
                    step += 1
                    progress.advance(STEP, 1)
            code = process.wait(_TIMEOUT_S)
        except BaseException:
            process.terminate()
            raise
    if code or not (part / "root.erofs").is_file():
        raise _refused(code, list(said))


def _refused(code: int, said: Sequence[str]) -> EnvironmentLacks:
    errors = [line.strip() for line in said if re.match(r"E[:r]|<E>", line)] or [
        line.strip() for line in said
    ]
    text = "; ".join(dict.fromkeys(errors[:2] + errors[-2:]))
    what = f"the root image cannot be built: mmdebstrap ended with {code}: {text}"
    if re.search(
        r"Could not resolve|connect|Failed to fetch|no Release file|Unable to fetch", " ".join(said)
    ):
        return EnvironmentLacks(what, "packages are downloaded once: check that apt-get update works here")
    if re.search(r"chroot mode|subuid|newuidmap|unshare", " ".join(said)):
        return EnvironmentLacks(
            what, "as an ordinary user this needs user namespaces: apt-get install uidmap, or run as root"
        )
    return EnvironmentLacks(what, "check the recipe in vms/rootfs")


# --- headers ---------------------------------------------------------------------------------


def headers_image(kernel: Kernel, progress: Progress) -> Path:
    """An image with `RELEASE/build` for bcc: the headers of exactly this kernel, from its distribution's
    packages. Raises KernelError if there are none (a user's own kernel, or one that apt no longer has),
    EnvironmentLacks if a program is missing.
    """
    if kernel.modules is None or not kernel.package_version:
        raise KernelError(f"there are no headers for {kernel.name}: it did not come from a package")
    release, version = kernel.modules.name, kernel.package_version
    final = cache_dir("rootfs") / f"headers-{release}-{version}"
    if (final / "headers.erofs").exists():
        return hold(final / "headers.erofs")
    _need_tools({"mkfs.erofs": "erofs-utils", "apt-get": "apt", "dpkg-deb": "dpkg"})
    progress.say(f"headers of {release}: downloading")
    with scratch_folder(cache_dir("rootfs"), "making-") as scratch:
        root, part = Path(scratch) / "unpacked", Path(scratch) / "part"
        part.mkdir()
        unpack_headers(kernel, root, Path(scratch))
        _merge(root, Path(scratch) / "tree" / release / "build")
        subprocess.run(
            [
                "mkfs.erofs",
                "-zlz4",
                "-T0",
                "--all-root",
                "--quiet",
                part / "headers.erofs",
                f"{scratch}/tree",
            ],
            check=True,
            capture_output=True,
        )
        if not final.exists():  # another process may have been faster
            part.rename(final)
    return final / "headers.erofs"


def _merge(root: Path, build: Path) -> None:
    """Merge what a compiler needs into one tree: Debian splits it into a common and a per-flavour part."""
    for tree in sorted((root / "usr/src").glob("linux-headers-*")):
        for part in ("include", "arch/x86/include"):
            if (tree / part).is_dir():
                shutil.copytree(tree / part, build / part, symlinks=True, dirs_exist_ok=True)
    if not (build / "include/generated/autoconf.h").exists():
        raise KernelError("no headers: the packages hold no include/generated/autoconf.h")
