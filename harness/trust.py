"""What a run directory names that is used only if this command line names it too.

A directory from somebody else is data: it chooses no program, no host and no file. Everything that goes on
with a run, or looks at it again, takes the run's plan through this module:

- its kernel: on some machines a program that runs on the host with the user's rights. It is used if it is a
  pin (a distribution's package), if the cache holds the same bytes, or if this command line names it.
- module directories and single modules: they become part of that kernel. They are used if this command line
  names them.
- workloads: those of this installation and generated ones are used by their names. A file or an application's
  directory names programs and files of this host, which go along into the guest, and whose contents its
  output may show. It is used if this command line names it.
- copies of those: a module or a workload of one's own is what its contents are, wherever it lies. What this
  command line names is taken for the run's own if it has the contents that the run recorded.
- a cluster's address: who answers there sends pickles, which run as they are read. Connected to only if this
  command line names it; workers on this host (local:4) are our own.
- a disk that somebody has: read only if this command line names it. Once a run has its base image, nothing
  but going on with the run asks for it.
- another run's recordings: copied only if this command line names that run.

What this command line names instead of it is used in its place; a run that is resumed goes on with the same.
Modes, machines, agent, disk and fsck are this installation's; a run directory cannot name others.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.errors import StoreError, UsageError
from harness.filesystems.existing import contents_of
from harness.guests.machine import accelerators, names
from harness.host.cache import cache_dir
from harness.host.files import file_hash
from harness.kernels.build import built_kernels
from harness.kernels.find import Kernel, find_kernel
from harness.kernels.pins import pins
from harness.model import Workload
from harness.model.schedules import without_schedule
from harness.plan import ExistingDisk, Plan
from harness.store import RunStore
from harness.workloads.applications import ENDINGS
from harness.workloads.generate import is_generated
from harness.workloads.load import contents_hash, is_installed, pin_name, select_workloads, without_neighbour

_OWN_CLUSTER = re.compile(r"local:\d+")
Asked = tuple[str, str]
"""An option with the value that this command line has to give it."""
_COPIED = frozenset({"--module", "-w"})
"""Options of files that are known by their contents."""


def _nobody(_: str) -> None:
    """Says nothing."""


@dataclass(frozen=True, slots=True)
class Named:
    """What this command line names. `cluster`: empty for none, None if it says nothing of one. `say` is told
    what was used without knowing that it is the same.
    """

    kernel: str | None = None
    modules: Path | None = None
    replaced: tuple[Path, ...] = ()
    workloads: tuple[str, ...] = ()
    cluster: str | None = None
    recordings: Path | None = None
    image: Path | None = None
    say: Callable[[str], None] = field(default=_nobody, compare=False)


NOTHING = Named()


def plan_here(store: RunStore, named: Named) -> Plan:
    """The plan of a run, naming what this command line names in place of the same modules and workloads at
    other paths; if it names no module, the run's copies of its own. Raises UsageError for a workload of the
    same name and with other contents.
    """
    own = store.plan() if named.replaced else with_kept_modules(store)
    plan = with_modules(own, store.info.kernel.replaced, named)
    workloads = [_workload_here(word, named, store.info.pins) for word in plan.workloads]
    return msgspec.structs.replace(plan, workloads=workloads)


def with_kept_modules(store: RunStore) -> Plan:
    """The plan of a run, naming the copies of its modules that it keeps."""
    plan, begun = store.plan(), store.info.kernel.replaced
    return msgspec.structs.replace(
        plan, replaced=[kept_module(store, Path(path), begun.get(path, "")) for path in plan.replaced]
    )


def kept_module(store: RunStore, path: Path, sha256: str) -> str:
    """The run's copy of a module; the path itself where it keeps none, or another."""
    kept = store.layout.module(path.name)
    return str(kept if kept.is_file() and file_hash(kept) == sha256 else path)


def with_modules(plan: Plan, begun: Mapping[str, str], named: Named) -> Plan:
    """The plan, naming copies of its modules where this command line does. `begun`: their SHA-256."""
    ours = {file_hash(path): str(path.resolve()) for path in named.replaced if path.is_file()}
    return msgspec.structs.replace(
        plan, replaced=[ours.get(begun.get(path, ""), path) for path in plan.replaced]
    )


def _workload_here(word: str, named: Named, pins: Mapping[str, str]) -> str:
    """The word of a run's plan, or the path of what is named here instead, and is the same."""
    if _is_vouched(word, named):
        return word
    for given in (w for w in named.workloads if not is_installed(w) and Path(w).name == Path(word).name):
        found = select_workloads([given])
        if recorded := [w for w in found if pin_name(w.name) in pins]:
            for workload in recorded:
                need_same_workload(workload, pins, given, named)
            return str(_resolved(given))
    return word


def need_same_workload(workload: Workload, pins: Mapping[str, str], path: str, named: Named) -> None:
    """Raises UsageError if a workload of one's own has other contents than the run recorded: what it
    acknowledges or checks now says nothing about what was written then. A run that kept no hash cannot tell:
    that is said.
    """
    then, now = pins.get(pin_name(workload.name), ""), contents_hash(workload)
    if not then:
        named.say(f"{path}: the run kept no hash of it; whether it is what was recorded is not known")
    if then not in ("", now):
        raise UsageError(
            f"{path} is not what the run recorded: sha256 {then[:12]} then, {now[:12]} now",
            "name its files as they were, with no others beside them (git stash, or a copy: -w DIR), or "
            "record it as it is: "
            f"powercut run -w {shlex.quote(path)}",
        )


def other_contents(store: RunStore, named: Named, name: str) -> str:
    """How a workload that this command line names differs from the `name` that the run recorded; empty if it
    does not, or none is named.
    """
    for given in (w for w in named.workloads if not is_installed(w) and may_hold(w, name)):
        for workload in (w for w in select_workloads([given]) if w.name == name):
            try:
                need_same_workload(workload, store.info.pins, given, named)
            except UsageError as e:
                return e.what
    return ""


def need_same_modules(begun: Mapping[str, str], named: Named) -> None:
    """Raises UsageError for a module named here that is none of those which a run or a series was begun with,
    by their contents: verdicts on two builds would stand beside each other. `begun`: their SHA-256, by path;
    without any, which build it was is not known, and that is said.
    """
    for path in named.replaced:
        if not begun:
            named.say(f"{path}: no hash of it was kept; whether it is what this was begun with is not known")
        if begun and path.is_file() and (now := file_hash(path)) not in begun.values():
            then = ", ".join(f"{Path(p).name} {sha[:12]}" for p, sha in begun.items())
            raise UsageError(
                f"{path} is another build than this was begun with: sha256 {then} then, {now[:12]} now",
                "name a copy of that build, or begin anew with this one",
            )


def vouched(plan: Plan, named: Named) -> Plan:
    """The plan of a run directory, for whoever repeats it: what this command line names takes the place of
    what the plan does. Raises UsageError, with the options to add, for what only the plan names.
    """
    need_known(plan.machine, plan.accel)
    other = named.kernel is not None and str(_resolved(named.kernel)) != plan.kernel
    image = _image(plan.kernel) if named.kernel is None else str(_resolved(named.kernel))
    _need_named(
        [
            *([] if image else [("--kernel", plan.kernel)]),
            *([] if other or named.modules or not plan.modules else [("--modules", plan.modules)]),
            *([] if named.kernel or named.replaced else [("--module", path) for path in plan.replaced]),
            *(("-w", word) for word in plan.workloads if not _is_vouched(word, named)),
            *([] if named.cluster is not None or is_own(plan.cluster) else [("--cluster", plan.cluster)]),
            *([] if named.recordings or not plan.recordings else [("--recordings", plan.recordings)]),
            *([] if named.image or not plan.image else [("--image", plan.image.path)]),
        ],
        f"for the kernel's own module instead: --kernel {shlex.quote(plan.kernel)}" if plan.replaced else "",
    )
    return msgspec.structs.replace(
        plan,
        kernel=image or plan.kernel,
        modules=str(named.modules.resolve()) if named.modules else None,
        replaced=[str(p.resolve()) for p in named.replaced],
        cluster=plan.cluster if named.cluster is None else named.cluster,
        recordings=str(named.recordings.resolve()) if named.recordings else None,
    )


def resumable(plan: Plan, named: Named) -> Plan:
    """The plan of a run that goes on with what it was begun with. Raises UsageError, with the options to add,
    for what only the plan names; and if this command line names something else.
    """
    resumable_kernel(plan.kernel, plan.modules, plan.replaced, named)
    if named.recordings and str(named.recordings.resolve()) != plan.recordings:
        _refuse_other("--recordings", str(named.recordings), plan.recordings)
    for word in named.workloads:
        if not is_among(word, plan.workloads):
            _refuse_other("-w", word, ", ".join(plan.workloads))
    return msgspec.structs.replace(vouched(plan, named), image=same_image(plan.image, named.image))


def same_image(begun: ExistingDisk | None, path: Path | None) -> ExistingDisk | None:
    """The disk that a run was begun with, at a path that this command line names. Raises UsageError for
    another.
    """
    if begun is None or path is None:
        if path is not None:
            _refuse_other("--image", str(path), "mkfs")
        return begun
    if (now := contents_of(path)) != begun.sha256:
        raise UsageError(
            f"{path} is another disk than the run was begun with: sha256 {begun.sha256[:12]} then, "
            f"{now[:12]} now",
            "name the disk as it was, or start a new run",
        )
    return msgspec.structs.replace(begun, path=str(path.resolve()))


def resumable_kernel(kernel: str, modules: str | None, replaced: Sequence[str], named: Named) -> str:
    """`resumable` for the files of a kernel alone: modules directory, single replaced modules, and the
    kernel, which is returned.
    """
    image = kernel if named.kernel else _image(kernel)
    now = {str(p.resolve()) for p in named.replaced}
    for option, begun_with, given in (
        ("--kernel", kernel, str(_resolved(named.kernel)) if named.kernel else None),
        ("--modules", modules, str(named.modules.resolve()) if named.modules else None),
    ):
        if given and given != begun_with:
            _refuse_other(option, given, begun_with)
    if other := now - set(replaced):
        _refuse_other("--module", ", ".join(sorted(other)), ", ".join(replaced))
    _need_named(
        [
            *([] if image else [("--kernel", kernel)]),
            *([("--modules", modules)] if modules and not named.modules else []),
            *(("--module", path) for path in replaced if path not in now),
        ]
    )
    return image


def chosen_kernel(plan: Plan, name: str, named: Named) -> Kernel:
    """The kernel that this command line names, with the modules it names; otherwise the run's own, called
    `name`. Raises UsageError for files that only the run directory names.
    """
    own = msgspec.structs.replace(plan, kernel=name, workloads=[], cluster="", recordings=None, image=None)
    asked = vouched(own, named)
    modules = Path(asked.modules) if asked.modules else None
    return find_kernel(asked.kernel, modules, [*map(Path, asked.replaced)])


def vouched_word(plan: Plan, named: Named, name: str) -> str:
    """The word for the workload `name` of a run's plan: its name, or the path that the plan names. Raises
    UsageError if that is a path which this command line does not name, StoreError if there is none.
    """
    if is_generated(name):
        return name
    for word in plan.workloads:
        if not _is_vouched(word, named):
            if may_hold(word, name):
                _need_called(word, named)
                _need_named([("-w", word)])
        elif name in [w.name for w in select_workloads([word])]:
            return name if is_installed(word) else word
    _need_named([("-w", word) for word in plan.workloads if not _is_vouched(word, named)])
    raise StoreError(f"the run's plan names no workload {name}", "record it again")


def _need_called(word: str, named: Named) -> None:
    """Raises UsageError if what this command line names instead of a workload is called otherwise."""
    if others := [w for w in named.workloads if not is_installed(w) and Path(w).name != Path(word).name]:
        if gone := [w for w in others if not Path(w).exists()]:
            raise UsageError(f"there is no {', '.join(gone)}", f"name a copy of {word}")
        raise UsageError(
            f"{', '.join(others)}: the run's workload is {word}, and a copy of it is called the same",
            f"name one that is called {Path(word).name}: -w DIR/{Path(word).name}",
        )


def vouched_workload(store: RunStore, named: Named, name: str) -> Workload:
    """The workload of that name which a run has recorded. Raises as `vouched_word`, and UsageError for a file
    of one's own whose contents are others by now.
    """
    word = vouched_word(plan_here(store, named), named, name)
    found = next(w for w in select_workloads([word]) if w.name == name)
    if not is_generated(name) and not is_installed(word):
        need_same_workload(found, store.info.pins, word, named)
    return found


def without_files(plan: Plan) -> Plan:
    """The plan for other kernels, one after another, on this host: without its own kernel's files, without a
    cluster and another run's recordings.
    """
    default = Plan(configurations=[], workloads=[]).kernel
    return msgspec.structs.replace(
        plan, kernel=default, modules=None, replaced=[], cluster="", recordings=None, image=None
    )


def need_named_files(option: str, values: Iterable[str], named: Iterable[str]) -> None:
    """Raises UsageError, with `option` and the values to add, for files among what a directory names that
    this command line does not name; and for what the command line names beyond that.
    """
    begun, named = list(values), list(named)
    for other in named:
        if not {other, str(_resolved(other))} & {*begun, *(str(_resolved(v)) for v in begun)}:
            _refuse_other(option, other, ", ".join(begun))
    known = {word for value in named for word in (value, str(_resolved(value)))}
    _need_named([(option, v) for v in begun if v not in known and ("/" in v or Path(v).is_file())])


def need_named_workloads(words: Iterable[str], named: Named) -> None:
    """Raises UsageError, with the options to add, for workloads that are neither this installation's nor
    named by this command line.
    """
    _need_named([("-w", word) for word in words if not _is_vouched(word, named)])


def need_known(machine: str, accel: str) -> None:
    """Raises StoreError for a machine or an accelerator that is none of ours: they are words of a command."""
    for what, value, known in (("machine", machine, names()), ("accelerator", accel, accelerators())):
        if value not in ("auto", *known):
            raise StoreError(
                f"the run directory names a {what} that does not exist: {value!r}",
                f"one of: {', '.join(known)}",
            )


def _is_vouched(word: str, named: Named) -> bool:
    """Whether a word that names workloads is this installation's, or one of this command line's. A file that
    is named is named under each of its schedules, and with a neighbour.
    """
    if is_installed(word):
        return True
    plain = without_schedule(word)[0]
    words = (word, plain, without_neighbour(plain)[0])  # which a folder of that name is not
    return any(w in words or str(_resolved(w)) in words for w in named.workloads)


def may_hold(word: str, name: str) -> bool:
    """Whether a path may be that of a workload, by their names alone: the file is not looked at."""
    (word, number), (name, of_name) = without_schedule(word), without_schedule(name)
    if ending := next((e for e in ENDINGS if word.endswith(e) and name.endswith(e)), ""):
        word, name = word.removesuffix(ending), name.removesuffix(ending)
    path = Path(word)
    return number == of_name and (name in (path.stem, path.name) or name.startswith(f"{path.name}-"))


def is_among(word: str, words: Iterable[str]) -> bool:
    """Whether a workload named here is one of these, which name their paths in full."""
    return not {word, str(_resolved(word))}.isdisjoint(words)


def is_own(cluster: str) -> bool:
    """Whether these workers are processes of this host that we start."""
    return not cluster or _OWN_CLUSTER.fullmatch(cluster) is not None


def _resolved(word: str) -> Path | str:
    return Path(word).resolve() if "/" in word or Path(word).is_file() else word


def _image(kernel: str) -> str:
    """The kernel that a run directory names, if it is a pin's name, or the cache has the same: then the
    cache's own copy, since that file may become another. Empty for other files.
    """
    path = Path(kernel)
    if not path.is_file():
        return "" if "/" in kernel else kernel  # a pin, or unknown: the lookup reports that
    return next((str(image) for image in _cached_images() if _same(image, path)), "")


def _same(image: Path, path: Path) -> bool:
    return image.stat().st_size == path.stat().st_size and file_hash(image) == file_hash(path)


def _cached_images() -> Iterator[Path]:
    packages = (p.parent for p in cache_dir("kernels").glob("*/complete"))
    images = [image for image, _ in built_kernels()]
    images += [image for root in packages for pin in pins().values() for image in root.glob(pin.image)]
    return (p for p in images if p.is_file())


def _refuse_other(option: str, given: str, begun_with: str | None) -> None:
    raise UsageError(
        f"{option} {given}: the run was started with {begun_with or 'none'}", "start a new run for that"
    )


def _need_named(asked: Sequence[Asked], instead: str = "") -> None:
    """Raises UsageError if anything is asked for. `instead`: what else can be done."""
    if asked:
        options = shlex.join(word for option in asked for word in option)
        named = ", ".join(value for _, value in asked)
        copy = (
            " (a copy that is called the same will do)" if {option for option, _ in asked} <= _COPIED else ""
        )
        raise UsageError(
            f"{named}: named by the run directory, and used only if you name it, too. A run directory may "
            "come from somebody else: it chooses no program that runs with your rights, no host, and no file "
            "of yours",
            "; ".join(filter(None, [f"if it is yours, or you trust it{copy}, add: {options}", instead])),
        )
