"""Which files of modules a guest must load, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from harness.errors import KernelError, UsageError
from harness.host import elf
from harness.host.packed import read_module
from harness.host.resources import resource
from harness.kernels.find import Kernel
from harness.kernels.packages import index_of


def resolve_modules(kernel: Kernel, wanted: Sequence[str]) -> list[Path]:
    """The module files to load, in order, for every module of `wanted`.

    Follows hard dependencies (modules.dep) and soft ones (modules.softdep, through modules.alias). Built-in
    modules need no file. Raises KernelError for a module that the kernel does not have.
    """
    if kernel.modules is None:
        return list(kernel.replaced)
    index = _ModuleIndex(kernel)
    order: dict[Path, None] = {}
    for name in wanted:
        if index.built_in(name):
            continue
        if not index.has(name):
            raise KernelError(
                f"kernel {kernel.name} has no module {name}, and it is not built in",
                f"enable it in the kernel's configuration ({_config_name(name)}), or name another kernel",
            )
        index.add(name, order)
    return list(order)


def need_replaced(kernel: Kernel, wanted: Sequence[str]) -> None:
    """Raises UsageError for a module of `kernel.replaced` that replaces none of the modules loaded for
    `wanted`: the run would not test it, and would seem to.
    """
    loaded = resolve_modules(kernel, wanted)
    for path in kernel.replaced:
        if path not in loaded and kernel.machine:
            raise UsageError(
                f"{kernel.name} loads no module {_key(path.name)}: {path} would not be tested",
                "name the kernel that it was built for, such as debian-6.12; or build one for this machine, "
                "of the whole source tree that the module is of: powercut kernel build TREE",
            )
        if path not in loaded:
            names = ", ".join(_key(p.name) for p in loaded) or "none: all that is needed is built in"
            raise UsageError(
                f"{kernel.name} loads no module {_key(path.name)} here: {path} would not be tested",
                f"a file is called as the module that it replaces; loaded are {names}",
            )


def need_release(kernel: Kernel, release: str) -> None:
    """Raises UsageError for a module of `kernel.replaced` that a kernel of this release refuses for certain:
    it is built for another one, and has no checksums of symbols that might agree for all that
    (`same_magic`, kernel/module/main.c). What else is refused, the guest says.
    """
    for path in kernel.replaced:
        module = read_module(path)
        built_for = elf.module_release(module)
        if release and built_for not in ("", release) and not elf.has_symbol_versions(module):
            raise UsageError(
                f"{path} is built for {built_for}, and {kernel.name} is {release}: it refuses the module",
                f"build it for {release}: from its source and configuration, or against its headers",
            )


def option_of(module: str) -> str:
    """The option of the kernel's configuration that builds a module, without CONFIG_ in front and perhaps _FS
    behind, by the kernel's custom; its tables of names and formats of quota differ from that
    (fs/nls/Makefile, fs/quota/Makefile).
    """
    name = module.replace("-", "_").upper()
    return re.sub(r"^NLS_CP(?=\d)", "NLS_CODEPAGE_", re.sub(r"^QUOTA_V(?=\d)", "QFMT_V", name))


def _config_name(module: str) -> str:
    """The option that builds a module, by Powercut's own kernel configurations; otherwise a guess."""
    name = "CONFIG_" + option_of(module)
    lines = (line for file in resource("kernels").glob("*.config") for line in file.read_text().splitlines())
    known = {line.partition("=")[0] for line in lines}
    return next((option for option in (name, f"{name}_FS") if option in known), name)


class _ModuleIndex:
    """modules.dep, modules.softdep, modules.alias and modules.builtin of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        assert kernel.modules is not None  # noqa: S101 - resolve_modules has checked
        self._dir = kernel.modules
        self._made = {} if (self._dir / "modules.dep").exists() else index_of(self._dir)
        self._replaced = {_key(p.name): p for p in kernel.replaced}
        self._chains: dict[str, list[str]] = {}
        for line in self._lines("modules.dep"):
            path, _, depends = line.partition(":")
            # modules.dep lists the deepest dependency last
            self._chains[_key(path)] = [*reversed(depends.split()), path]
        self._builtin = {_key(line) for line in self._lines("modules.builtin")}
        self._soft: dict[str, list[str]] = {}
        for line in self._lines("modules.softdep"):
            match = re.fullmatch(r"softdep (\S+) pre: (.*?)(?: post:.*)?", line)
            if match:
                self._soft.setdefault(_key(match[1]), []).extend(match[2].split())
        self._alias: dict[str, list[str]] = {}
        for line in self._lines("modules.alias"):
            _, alias, module = line.split(None, 2)
            self._alias.setdefault(alias, []).append(module)

    def _lines(self, name: str) -> list[str]:
        path = self._dir / name
        text = self._made.get(name) or (path.read_text() if path.exists() else "")
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    def built_in(self, name: str) -> bool:
        return _key(name) in self._builtin

    def has(self, name: str) -> bool:
        return _key(name) in self._chains or _key(name) in self._replaced

    def add(self, name: str, order: dict[Path, None]) -> None:
        for path in self._chains.get(_key(name), [name]):
            final = self._replaced.get(_key(path), self._dir / path)
            if final in order:
                continue
            for soft in self._soft.get(_key(path), []):
                for module in self._alias.get(soft, [soft]):
                    if self.has(module):
                        self.add(module, order)
            order[final] = None


def _key(path: str) -> str:
    """A module's name as the kernel compares it: no directory, no suffix, `-` as `_`."""
    return path.rpartition("/")[2].split(".ko")[0].replace("-", "_")
