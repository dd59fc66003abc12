"""power-cut: a machine killed for real, at random moments, in every mode."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness.cases.recording import make_base
from harness.errors import EnvironmentLacks
from harness.filesystems.profile import Profile
from harness.guests.guest_specs import make_specs, missing_for
from harness.guests.machine import default_name
from harness.guests.session import GuestSpec
from harness.host.packed import pack
from harness.measure.comparison import Comparison, Configuration, Host, Sizes, Surroundings
from harness.measure.cutting import AfterCut, cut_and_judge, plan_cut
from harness.measurements.results import Cell, Results, Table
from harness.measurements.samples import Sample, Samples
from harness.model import Verdict
from harness.plan import GuestChoice

MODES = (
    "ext4/journal",
    "ext4/ordered",
    "ext4/writeback",
    "ext4/nobarrier",
    "ext3/ordered",
    "xfs/default",
    "btrfs/default",
)
_SHOWN_VIOLATIONS = 3


@dataclass
class Plug:
    """Cuts the power and judges the disk: a guest spec, and base images by mode."""

    host: Host
    spec: GuestSpec
    bases: dict[str, Path] = field(default_factory=dict)

    def base(self, profile: Profile) -> Path:
        """An empty file system of that mode, made on first use."""
        if profile.name not in self.bases:
            self.bases[profile.name] = _base(self.host, profile)
        return self.bases[profile.name]


def _base(host: Host, profile: Profile) -> Path:
    return make_base(profile, host.scratch / f"{profile.filesystem}-{profile.mode}.zst", host.scratch)


class PowerCut(Comparison[Plug]):
    name = "power-cut"
    summary = "a machine killed by SIGKILL in the middle of writing, rebooted, recovered, judged"
    repeats = (
        "pulling the plug at random and looking for the journal's `recovery complete`; what comes back is "
        "judged as `powercut run` judges a crash state, by names, sizes, every byte and fsck"
    )
    modes = MODES
    rounds = 4

    def sizes(self, scale: float) -> Sizes:
        return {"operations": max(2, round(120 * scale))}

    @contextlib.contextmanager
    def rig(self, host: Host, sizes: Sizes) -> Iterator[Plug]:
        lacks = {c.name: missing_for(c.profile, host.kernel) for c in self.configurations()}
        profiles = [c.profile for c in self.configurations() if not lacks[c.name]]
        if not profiles:
            raise EnvironmentLacks("; ".join(dict.fromkeys(lacks.values())))
        asked = GuestChoice(machine=default_name(), accel=host.accel)
        specs = make_specs(asked, host.kernel, profiles, [], _base(host, profiles[0]), host.scratch)
        yield Plug(host, specs.recorder)

    def surroundings(self, rig: Plug) -> Surroundings:
        release = rig.host.kernel.modules.name if rig.host.kernel.modules else rig.host.kernel.name
        return Surroundings(f"Linux {release}", rig.spec.machine.described, rig.spec.machine.accel)

    def take(self, rig: Plug, configuration: Configuration, sizes: Sizes, number: int) -> Sample:
        profile = configuration.profile
        if reason := missing_for(profile, rig.host.kernel):
            return Sample(configuration.name, number, reason=reason)
        seed = f"{rig.host.seed}/{configuration.name}/{number}"
        cut = plan_cut(seed, sizes["operations"])
        seen = cut_and_judge(rig.spec, profile, rig.base(profile), cut, rig.host.scratch)
        if seen.judgement.verdict is not Verdict.PASS:
            _keep(rig.host, configuration, number, seen)
        reached = min(seen.position.acked, len(cut.operations) - 1)
        return Sample(
            configuration.name,
            number,
            values={
                "acknowledged": seen.position.acked,
                "in_flight": seen.position.begun - seen.position.acked,
                "recovery_ms": seen.recovery_s * 1e3,
            },
            words={
                "verdict": seen.judgement.verdict.value,
                "recovered": seen.recovered,
                "operation": str(cut.operations[reached]),
                "seed": seed,
                "why": "; ".join(_why(seen)),
            },
        )

    def verdict(self, samples: Samples) -> Verdict:
        seen = {v for name in samples.configurations() for v in samples.words(name, "verdict")}
        return next((v for v in (Verdict.FAIL, Verdict.UNKNOWN) if v.value in seen), Verdict.PASS)

    def evaluate(self, samples: Samples, sizes: Sizes) -> Results:
        return Results(tables=[_outcomes(samples), _each(samples)], notes=NOTES, answer=answer(samples))


NOTES = (
    "What dies is the virtual machine, with everything in the guest's memory. The disk is another process "
    "and keeps every write that had completed, flushed or not; the cache of a real drive could lose those "
    "too. So barrier=0 is not caught here, and is by `powercut run`, which goes through what such a cache "
    "may lose.",
    "Each cut is given by its seed: the operations, and when after which of them the machine is killed. The "
    "moment within the guest's own work is not repeatable.",
)


def answer(samples: Samples) -> str:
    """The outcome of all cuts, in a sentence."""
    names = [name for name in samples.configurations() if samples.words(name, "verdict")]
    verdicts = Counter(v for name in names for v in samples.words(name, "verdict"))
    cuts = sum(verdicts.values())
    if not cuts:
        return ""
    kept, broken = verdicts[Verdict.PASS.value], verdicts[Verdict.FAIL.value]
    modes = [name for name in names if Verdict.FAIL.value in samples.words(name, "verdict")]
    parts = [f"every promise was kept after {'each' if kept == cuts else kept}"]
    parts += [f"broken after {broken} ({', '.join(modes)})"] if broken else []
    parts += [f"undecided after {cuts - kept - broken}"] if cuts - kept - broken else []
    what = f"{cuts} power cut{'s' * (cuts > 1)} in {len(names)} mode{'s' * (len(names) > 1)}"
    return f"{what}: {'; '.join(parts)}."


def _why(seen: AfterCut) -> list[str]:
    found = [f"{v.oracle}: {v.summary}" for v in seen.judgement.violations]
    return (found or list(seen.judgement.unknown))[:_SHOWN_VIOLATIONS]


def _keep(host: Host, configuration: Configuration, number: int, seen: AfterCut) -> None:
    """Keep the disk and the outcome: a real cut cannot be repeated."""
    folder = host.kept / "cuts" / f"{configuration.name.replace('/', '-')}-{number + 1}"
    folder.mkdir(parents=True, exist_ok=True)
    pack(host.scratch / "cut.img", folder / "disk.img.zst")
    contents = {"position": seen.position, "judgement": seen.judgement, "kernel_log": seen.outcome.kernel_log}
    (folder / "seen.json").write_bytes(msgspec.json.format(msgspec.json.encode(contents), indent=1))


def _outcomes(samples: Samples) -> Table:
    rows: list[list[Cell]] = []
    for name in samples.configurations():
        verdicts = Counter(samples.words(name, "verdict"))
        replayed = sum(1 for line in samples.words(name, "recovered") if line)
        cuts = sum(verdicts.values())
        rows.append(
            [
                name,
                f"{cuts}",
                f"{replayed}",
                *(f"{verdicts[v.value]}" for v in (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN)),
                samples.spread(name, "acknowledged"),
                samples.spread(name, "recovery_ms"),
            ]
        )
    columns = ["mode", "power cuts", "journal replayed", "kept", "broken", "undecided"]
    return Table(
        title="Outcomes",
        columns=[*columns, "operations acknowledged", "mount with recovery, ms"],
        rows=rows,
        note="Journal replayed: the kernel said so at the mount (ext3, ext4: `recovery complete`). btrfs has "
        "no journal of that kind; it says so only where a log tree was replayed.",
    )


def _each(samples: Samples) -> Table:
    rows: list[list[Cell]] = []
    taken = {(s.configuration, s.round): s for s in samples.taken if not s.reason}  # one that counts of each
    for _, sample in sorted(taken.items()):
        done = sample.values["acknowledged"]
        begun = "in" if sample.values["in_flight"] else "before"
        words = sample.words
        rows.append(
            [
                f"{sample.configuration} {sample.round + 1}",
                words["seed"],
                f"{begun} operation {done:.0f}, {words['operation']}",
                words["recovered"] or "not said",
                f"{words['verdict']} {words['why']}".strip(),
            ]
        )
    return Table("Each power cut", ["mode", "seed", "killed", "the kernel at the mount", "verdict"], rows)
