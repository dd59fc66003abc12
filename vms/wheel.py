"""Hatchling's build hook: put the built Rust parts and the documents into the wheel, and tag it for the platform they run on.

[doc] https://hatch.pypa.io/latest/plugins/build-hook/custom/; PEP 600 for the tag: a shared library's symbols
name the oldest glibc that it works with.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = (
    "release/powercut-disk",
    "release/libpowercut_readtrace.so",
    "release/libpowercut_umlshim.so",
    "x86_64-unknown-linux-gnu/release/powercut-agent",
)
SITE = "dist/site"


class RustParts(BuildHookInterface):
    """Adds PARTS of `target/` as `harness/_data/parts/`, and SITE as `harness/_data/site/`. An editable installation uses `target/` itself."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises RuntimeError if a part is not built. The site is left out if it is not: `make wheel` builds it."""
        if version == "editable":
            return
        target = Path(self.root, "target")
        if missing := [part for part in PARTS if not (target / part).is_file()]:
            raise RuntimeError(f"target/{missing[0]} is not built; run: make wheel")
        site = Path(self.root, SITE)
        if (site / "docs/index.html").is_file():
            build_data["force_include"][str(site)] = "harness/_data/site"
        for part in PARTS:
            build_data["force_include"][str(target / part)] = f"harness/_data/parts/{Path(part).name}"
        minor = max(_glibc_minor(target / part) for part in PARTS)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_{minor}_{platform.machine()}"


def _glibc_minor(part: Path) -> int:
    """Of the newest version of glibc whose symbols a part uses, 34 for GLIBC_2.34; 17, the oldest that a tag
    has a name for, if it is linked statically.
    """
    return max([17, *(int(n) for n in re.findall(rb"GLIBC_2\.(\d+)", part.read_bytes()))])
