"""What a verdict says of configurations on kernels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from harness.cli.verdict import exit_code
from harness.errors import ExitCode
from harness.known.base import KnownBug, KnownBugs, Record, Severity, Sighting
from harness.plan import Plan
from harness.releases.results import Answer, EarlierAnswer, OnKernel, Seen, Sweep, SweepPlan
from harness.releases.verdict import DEPTHS, Kind, standings
from harness.releases.verdict_page import COLUMNS, verdict_csv, verdict_page
from harness.summary import CaseVerdict
from harness.workloads.load import select_workloads

OURS = KnownBug(
    name="=ours",
    title="it loses a file",
    record=Record(severity=Severity.DESTROYS, mechanism="m", first="6.1", workaround="mount it with care"),
)
KNOWN = Seen("durability", "f: missing", "xfs-default/a@4", 3, known="xfs-sync-no-flush")
NEW = Seen("size", "f: 0 bytes", "xfs-default/a@5", 2)
DESIGN = Seen("durability", "f: missing", "ext4-nobarrier/a@4", 3, expected="it sends no flush")


def answer(
    configuration: str, *findings: Seen, verdict: CaseVerdict | None = None, name: str = "a"
) -> Answer:
    """A case with these findings; kept if there are none."""
    broken = CaseVerdict.FAIL if any(not f.expected for f in findings) else CaseVerdict.XFAIL
    judged = verdict or (broken if findings else CaseVerdict.PASS)
    states = 0 if judged is CaseVerdict.NOT_RUN else 10
    reason = "the archive has no mkfs" if judged in (CaseVerdict.NOT_RUN, CaseVerdict.UNKNOWN) else ""
    return Answer(configuration, name, judged, states, len(findings), findings, reason)


def sweep(*kernels: tuple[Answer, ...]) -> Sweep:
    """A verdict with these answers on each kernel."""
    names = [f"6.{n}" for n in range(1, len(kernels) + 1)]
    plan = SweepPlan(
        title="Verdict",
        kernels=names,
        plan=Plan(configurations=["xfs/default"], workloads=["quick"]),
        depth="quick",
        known=KnownBugs(bug=(OURS,)),
        argv=["verdict"],
    )
    done = [
        OnKernel(item=n, name=n, run=f"kernels/{n}/runs/r", answers=of)
        for n, of in zip(names, kernels, strict=True)
    ]
    return Sweep(plan, tuple(done), begun="2026-11-26T00:00:00+00:00")


def kinds(found: Sweep) -> dict[str, list[Kind]]:
    return {name: [s.kind for s in of] for name, of in standings(found)}


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ((answer("xfs/default"),), Kind.SAFE),
        ((answer("xfs/default", KNOWN),), Kind.KNOWN),
        ((answer("xfs/default", DESIGN),), Kind.KNOWN),
        ((answer("xfs/default", KNOWN, NEW),), Kind.NEW),
        ((answer("xfs/default", verdict=CaseVerdict.UNKNOWN),), Kind.OPEN),
        ((answer("xfs/default", verdict=CaseVerdict.NOT_RUN),), Kind.NOT_LOOKED),
        ((), Kind.NOT_LOOKED),
    ],
)
def test_a_configuration_is_as_good_as_the_worst_that_it_showed(
    answers: tuple[Answer, ...], kind: Kind
) -> None:
    assert kinds(sweep(answers)) == {"xfs/default": [kind]}


def test_a_finding_whose_bug_nobody_knows_any_more_is_new() -> None:
    gone = msgspec.structs.replace(KNOWN, known="gone-from-the-base")
    assert kinds(sweep((answer("xfs/default", gone),))) == {"xfs/default": [Kind.NEW]}


def test_a_configuration_with_an_undecided_workload_is_not_called_safe() -> None:
    answers = (answer("xfs/default"), answer("xfs/default", verdict=CaseVerdict.UNKNOWN, name="b"))
    ((_, (standing,)),) = standings(sweep(answers))
    assert (standing.kind, standing.states, standing.looked, standing.of) == (Kind.OPEN, 20, 1, 2)
    text = verdict_page(sweep(answers)).text()
    assert "not decided: 1 of 2 workloads kept every promise (20 states); b: the archive has no mkfs" in text
    assert "not enough is known: b: the archive has no mkfs" in text


def test_known_findings_of_a_case_that_is_not_decided_are_no_whole_answer() -> None:
    """With --new-only it ended in 0 although three of four states could not be decided."""
    left = msgspec.structs.replace(answer("xfs/default", KNOWN), reason="3 of 4 states could not be decided")
    ((_, (standing,)),) = standings(sweep((left,)))
    assert (standing.kind, standing.looked, standing.undecided) == (Kind.KNOWN, 0, 1)
    assert exit_code([standing], new_only=True) is ExitCode.UNDECIDED


def test_a_bug_is_looked_up_by_the_version_of_linux_not_by_the_release() -> None:
    """Debian's 6.1.0-50-amd64 is Linux 6.1.176: a bug that was mended in 6.1.150 was listed."""
    record = msgspec.structs.replace(OURS.record, mended=("6.1.150",), shows=(
        Sighting(modes=("xfs/*",), oracles=("fsck",), symptoms=("x",)),))  # fmt: skip
    mended = msgspec.structs.replace(OURS, record=record)
    of = sweep((answer("xfs/default"),))
    plan = msgspec.structs.replace(of.plan, known=KnownBugs(bug=(mended,)))
    (kernel,) = of.kernels

    def not_shown(linux: str) -> bool:
        on = msgspec.structs.replace(kernel, release="6.1.0-50-amd64", linux=linux)
        ((_, (standing,)),) = standings(Sweep(plan, (on,)))
        return mended in standing.not_shown

    assert not_shown("")
    assert not not_shown("6.1.176")


@pytest.mark.parametrize(("lacks", "of"), [(True, 2), (False, 1)])
def test_what_could_not_be_run_here_counts_among_what_was_asked(lacks: bool, of: int) -> None:
    """A workload that the file system cannot run has no answer to give; one that was left out here has."""
    left = msgspec.structs.replace(answer("xfs/default", verdict=CaseVerdict.NOT_RUN, name="b"), lacks=lacks)
    ((_, (standing,)),) = standings(sweep((answer("xfs/default"), left)))
    assert (standing.kind, standing.looked, standing.of) == (Kind.SAFE, 1, of)
    said = "safe as far as looked (10 states, 1 of 2 workloads; not run: b: the archive has no mkfs)"
    assert (said in verdict_page(sweep((answer("xfs/default"), left))).text()) is lacks


def test_a_workload_of_which_the_budget_left_out_states_is_counted() -> None:
    """`451 states, 8 of 8 workloads` read as all of them; on a slow host half of the states were left out."""
    part = msgspec.structs.replace(answer("xfs/default"), in_part=True)
    text = verdict_page(sweep((part, answer("xfs/default", name="b")))).text()
    assert "safe as far as looked (20 states, 2 of 2 workloads, 1 of them in part)" in text


def test_what_the_time_was_too_short_for_is_told_as_that_and_how_to_go_on() -> None:
    """Thirty cells said "rename-new: the run ended before it was recorded", and no line how to go on."""
    late = msgspec.structs.replace(
        answer("xfs/default", verdict=CaseVerdict.UNKNOWN, name="b"),
        reason="the run ended before it was recorded",
    )
    both = sweep(
        (answer("xfs/default"), late, msgspec.structs.replace(late, configuration="jfs/default", states=0))
    )
    text = verdict_page(both).text()
    assert "not decided: 1 of 2 workloads kept every promise (20 states); the others were not reached" in text
    assert "jfs/default    not looked at: not reached" in text
    assert "xfs/default: On 6.1 not enough is known: not all was reached; --resume goes on." in text
    assert f"continue with: powercut verdict --resume {both.path.absolute()}" in text
    assert "continue with" not in verdict_page(sweep((answer("xfs/default"),))).text()
    # The command that goes on had no end, and its pace is not known.
    ended = replace(both, plan=msgspec.structs.replace(both.plan, argv=["verdict", "--minutes", "1"]))
    assert f"verdict --resume {both.path.absolute()} --minutes 5\n" in verdict_page(ended).text()


def test_of_what_nothing_is_known_the_cells_and_kernels_are_told_at_once() -> None:
    """ "10 configurations on 2 kernels: 10 not looked at": on both, or on one? And each stood twice below."""
    late = msgspec.structs.replace(
        answer("xfs/default", verdict=CaseVerdict.UNKNOWN),
        reason="the run ended before it was recorded", states=0,
    )  # fmt: skip
    of = sweep((late, msgspec.structs.replace(late, configuration="jfs/default")), (late,))
    text = verdict_page(of).text()
    assert "2 configurations on 2 kernels: 2 not looked at on either" in text.splitlines()[0]
    assert "On 6.1 and 6.2 nothing is known: not reached; --resume goes on." in text
    partly = verdict_page(sweep((answer("xfs/default"),), (late,))).text()
    assert "1 configuration on 2 kernels: 1 not looked at on one at least" in partly.splitlines()[0]
    ended = replace(of, plan=msgspec.structs.replace(of.plan, argv=["verdict", "--minutes=1"]))
    assert " --minutes 10\n" in verdict_page(ended).text(), "base images take the time of a first look"


@pytest.mark.parametrize(("depth", "says"), [("quick", "normal"), ("normal", "deep"), ("deep", "")])
def test_a_longer_look_is_the_next_depth(depth: str, says: str) -> None:
    """A quick verdict advised the deepest one, which takes hours."""
    of = sweep((answer("xfs/default"),))
    text = verdict_page(replace(of, plan=msgspec.structs.replace(of.plan, depth=depth))).text()
    assert text.count("A longer look is") == bool(says)
    assert f"--depth {says}." in text or not says


def test_the_page_says_what_to_do_of_every_kind() -> None:
    first = (
        answer("xfs/default", KNOWN), answer("ext4/ordered"), answer("ext4/nobarrier", DESIGN),
        answer("f2fs/posix", NEW), answer("gfs2/default", msgspec.structs.replace(KNOWN, known="=ours")),
    )  # fmt: skip
    second = (answer("ext4/ordered"), answer("jfs/default", verdict=CaseVerdict.NOT_RUN))
    text = verdict_page(sweep(first, second)).text()
    assert "6 configurations on 2 kernels: 1 safe as far as looked on both" in text.splitlines()[0]
    assert "ext4/ordered: Nothing was found against it." in text
    assert "gfs2/default on 6.1: After a power cut the file system may not come back" in text
    assert "Workaround: mount it with care." in text
    assert "Workaround: call fsync on each file instead of sync. (xfs-sync-no-flush)" in text
    assert "ext4/nobarrier: It is expected to lose data: it sends no flush." in text
    assert "f2fs/posix: On 6.1 it broke a promise in a way that no known bug does." in text
    assert "reproduce: powercut repro xfs-default/a@5 --from " in text
    assert "jfs/default: On 6.2 nothing is known: the archive has no mkfs." in text
    assert "xfs/default, ext4/nobarrier, f2fs/posix and gfs2/default: On 6.2 nothing is known: not" in text


def test_the_page_says_how_to_read_it_and_when_it_was_begun() -> None:
    """Colours had no legend, figures in brackets no words, and the time was `2026-11-26T00:00:00+00:00`."""
    page = verdict_page(sweep((answer("xfs/default", KNOWN),)))
    assert "begun 2026-11-26 00:00 UTC" in page.text()
    assert "In brackets: the crash states that were checked" in page.html()
    assert "Purple: " in page.html()
    assert "Purple: " not in page.text() + page.markdown()
    assert "<code>xfs-sync-no-flush</code> XFS: sync(2) and syncfs(2) return without a flush" in page.html()


def test_the_page_is_no_milder_than_its_table() -> None:
    """Over five red cells the page was purple."""
    assert verdict_page(sweep((answer("xfs/default", KNOWN),))).kind == "fail"
    mild = Seen("usable", "dirty", "vfat-default/a@4", 3, expected="the dirty flag stays")
    assert verdict_page(sweep((answer("vfat/default", mild),))).kind == "xfail"


FLAG = Seen("usable", "dirty", "vfat-default/a@4", 3, expected="the dirty flag stays")
BARE = Seen("readable", "EIO", "vfat-default/a@5", 3, expected="a directory without its first cluster")


@pytest.mark.parametrize(
    ("found", "advice", "cell", "severity"),
    [
        (
            (FLAG, BARE),
            ["It is expected to be damaged, or to need a repair: the dirty flag stays; a directory without"],
            "broken: known, damage that is expected (",
            "",
        ),
        (
            (FLAG, DESIGN),
            ["It is expected to lose data: it sends no flush.", "It is expected to be damaged"],
            "broken: known, as expected of it: loses data that was synced (",
            "loses-synced",
        ),
        (
            (msgspec.structs.replace(FLAG, oracle="size"), BARE),
            ["It is expected to damage data that was not synced: the dirty", "It is expected to be damaged"],
            "broken: known, as expected of it: damages data that was not synced (",
            "damages-unsynced",
        ),
        (
            (DESIGN, msgspec.structs.replace(FLAG, oracle="mountable"), FLAG),
            [
                "It is expected to be damaged, or to need a repair: the dirty flag stays.",
                "expected to lose data",
            ],
            "broken: known, as expected of it: makes the file system unusable without repair (",
            "destroys",
        ),
    ],
)
def test_what_is_expected_is_told_as_what_it_is_the_worst_first(
    found: tuple[Seen, ...], advice: list[str], cell: str, severity: str
) -> None:
    """`vfat/default: It is expected to lose data: the mount became read-only`, which loses none; a table of
    what lost synced data had ext4/nobarrier without any severity.
    """
    of = sweep((answer("vfat/default", *found),))
    text = verdict_page(of).text()
    places = [text.index(line) for line in advice]
    assert places == sorted(places)
    assert text.count("It is expected to") == len(advice)
    assert cell in text
    (row,) = (r for r in csv.DictReader(io.StringIO(verdict_csv(of))) if r["configuration"] == "vfat/default")
    assert row["severity"] == severity
    assert row["expected"].split("; ")[0] in text[places[0] :].splitlines()[0]


def test_what_one_kernel_alone_shows_is_not_told_of_another_that_was_looked_at() -> None:
    """The page said of a mode that it is expected to lose data, beside a kernel that has it mended, and on
    which the table called the mode safe as far as looked.
    """
    shows, keeps = answer("ext4/nobarrier", FLAG, DESIGN), answer("ext4/nobarrier")
    said = "ext4/nobarrier: It is expected to lose data: it sends no flush"
    assert f"{said} (on 6.1)." in verdict_page(sweep((shows,), (keeps,))).text()
    for kernels in (((shows,), (shows,)), ((shows,), ())):
        assert f"{said}." in verdict_page(sweep(*kernels)).text()


def test_the_worst_bug_comes_first() -> None:
    both = (answer("xfs/default", KNOWN, msgspec.structs.replace(KNOWN, known="=ours")),)
    lines = verdict_page(sweep(both)).text().splitlines()
    order = [n for n, line in enumerate(lines) if "Workaround" in line]
    assert "mount it with care" in lines[order[0]]


def test_csv_and_json_have_a_row_for_each_configuration_on_each_kernel() -> None:
    found = sweep((answer("xfs/default", msgspec.structs.replace(KNOWN, known="=ours")),), ())
    rows = list(csv.DictReader(io.StringIO(verdict_csv(found))))
    data = json.loads(verdict_page(found).json())["verdicts"]
    assert list(rows[0]) == list(COLUMNS) == list(data[0])
    assert [r["verdict"] for r in rows] == ["broken: known", "not looked at"]
    assert rows[0]["severity"] == "destroys"
    assert rows[0]["known_bugs"] == "'=ours"  # no formula
    assert data[0]["known_bugs"] == "=ours"


SAFE, OPEN = answer("ext4/ordered"), answer("xfs/default", verdict=CaseVerdict.UNKNOWN, name="b")
LEFT_OUT = answer("f2fs/posix", verdict=CaseVerdict.NOT_RUN)


@pytest.mark.parametrize(
    ("answers", "new_only", "code"),
    [
        ((SAFE,), False, ExitCode.CONSISTENT),
        ((SAFE, answer("xfs/default", KNOWN)), False, ExitCode.INCONSISTENT),
        ((SAFE, answer("xfs/default", KNOWN)), True, ExitCode.CONSISTENT),
        ((answer("xfs/default", KNOWN), answer("f2fs/posix", NEW)), True, ExitCode.INCONSISTENT),
        ((SAFE, LEFT_OUT), True, ExitCode.UNDECIDED),
        ((OPEN,), False, ExitCode.UNDECIDED),
        ((answer("xfs/default", KNOWN), OPEN), True, ExitCode.UNDECIDED),
        ((answer("xfs/default", KNOWN), OPEN), False, ExitCode.INCONSISTENT),
    ],
)
def test_exit_codes(answers: tuple[Answer, ...], new_only: bool, code: ExitCode) -> None:
    """With --new-only, one known bug in the first of twenty workloads made up for the other nineteen."""
    found = [
        s for name, of in standings(sweep(answers)) for s in of if name in {a.configuration for a in answers}
    ]
    assert exit_code(found, new_only=new_only) is code
    assert exit_code([], new_only=new_only) is ExitCode.UNDECIDED


def test_nothing_is_to_be_gone_on_with_where_nothing_would_be_tried_again() -> None:
    """`continue with: powercut verdict --resume` did nothing: what lacked was known, and kept."""
    lacking = msgspec.structs.replace(LEFT_OUT, lacks=True)
    assert "continue with" not in verdict_page(sweep((SAFE, lacking))).text()
    assert "continue with" in verdict_page(sweep((lacking,))).text()


def test_the_workloads_of_every_depth_exist() -> None:
    for depth in DEPTHS.values():
        assert select_workloads(list(depth.workloads))


def test_only_a_quick_verdict_asks_less_than_a_run_does_without_options() -> None:
    """`normal` lost six workloads that went from `more` to `all`."""
    for name in DEPTHS.keys() - {"quick"}:
        asked = {w.name for w in select_workloads(DEPTHS[name].workloads)}
        assert asked >= {w.name for w in select_workloads(["all"])}


def test_a_verdict_of_which_no_workload_was_looked_at_whole_says_so() -> None:
    """`9 of 9 workloads, 9 of them in part`: the green cell read as nine workloads."""
    part = msgspec.structs.replace(answer("xfs/default"), in_part=True)
    text = verdict_page(sweep((part,))).text()
    assert "safe as far as looked (10 states, 1 of 1 workload, and that one not in full)" in text


def test_a_verdict_that_differs_from_those_before_says_so() -> None:
    """Only whoever kept yesterday's page could see what the night had changed."""
    now = sweep((answer("xfs/default", KNOWN), answer("ext4/ordered"), answer("btrfs/default")))
    said = [
        EarlierAnswer(datetime(2026, 11, day, tzinfo=UTC), verdict, bugs)
        for day, verdict, bugs in (
            (20, "broken: known", "xfs-sync-no-flush"),
            (21, "safe as far as looked", ""),
            (22, "safe as far as looked", ""),
            (23, "not decided", ""),
        )
    ]
    told = replace(now, before={(name, "6.1"): said for name in ("xfs/default", "ext4/ordered")})
    text = " ".join(verdict_page(told).text().split())
    changed = (
        "Since earlier verdicts xfs/default on 6.1: Now broken: known (xfs-sync-no-flush); on 2026-11-22 "
        "it was safe as far as looked, and in 1 verdict before that. 1 answer as on 2026-11-22. What to do"
    )
    assert changed in text
    assert "Since earlier" not in verdict_page(now).text()


def test_a_verdict_says_where_less_was_asked_than_its_depth_says() -> None:
    """`safe as far as looked` at depth normal, on a kernel of which the log's order alone was looked at."""
    ordered = msgspec.structs.replace(answer("xfs/default"), in_order="recorded without times")
    both = sweep((ordered,), (ordered, answer("xfs/default", name="b")))
    text = " ".join(verdict_page(both).text().split())
    assert "(10 states, 1 of 1 workload, in the disk's own order alone)" in text
    assert "(20 states, 2 of 2 workloads, 1 of them in the disk's own order alone)" in text
    order = "writes were lost only in the order in which the disk had them"
    assert f"xfs/default: On 6.1 and 6.2 {order}" in text
    assert "own order" not in verdict_page(sweep((answer("xfs/default"),))).text()
    rows = csv.DictReader(io.StringIO(verdict_csv(both)))
    assert [row["workloads_in_order"] for row in rows] == ["1", "1"]


def test_a_known_bug_that_no_workload_showed_is_told_of() -> None:
    """XFS was safe as far as looked: the one workload that shows its bug had not had its turn."""
    plain = sweep((answer("xfs/default"), answer("ext4/ordered")), (answer("xfs/default", KNOWN),))
    kernels = tuple(msgspec.structs.replace(k, release="6.12.117+deb12-amd64") for k in plain.kernels)
    text = verdict_page(replace(plain, kernels=kernels)).text()
    assert "safe as far as looked (10 states, 1 of 1 workload; 2 known bugs not shown)" in text
    assert "safe as far as looked (10 states, 1 of 1 workload)" in text, "ext4/ordered has none"
    bugs = "xfs-repair-clears-attributes and xfs-sync-no-flush (on 6.1)."
    assert f"xfs/default: Known bugs that these workloads did not show: {bugs}" in " ".join(text.split())
    assert "powercut known xfs-repair-clears-attributes" in text
    both_safe = sweep((answer("xfs/default"), answer("ext4/ordered")))
    release = [msgspec.structs.replace(k, release="6.12.117+deb12-amd64") for k in both_safe.kernels]
    text = verdict_page(replace(both_safe, kernels=tuple(release))).text()
    assert "ext4/ordered: Nothing was found against it." in text
    assert (
        "xfs/default: These workloads found nothing, and did not show known bugs, which are named below."
        in text
    )
    rows = list(csv.DictReader(io.StringIO(verdict_csv(replace(plain, kernels=kernels)))))
    told = [row["known_bugs_not_shown"] for row in rows if row["configuration"] == "xfs/default"]
    assert told == ["xfs-repair-clears-attributes xfs-sync-no-flush", "xfs-repair-clears-attributes"]


def paced(*seconds: float, answers: Sequence[tuple[Answer, ...]]) -> str:
    """The page of a verdict whose kernels took these times."""
    plain = sweep(*answers)
    taken = [msgspec.structs.replace(k, seconds=s) for k, s in zip(plain.kernels, seconds, strict=True)]
    return verdict_page(replace(plain, kernels=tuple(taken))).text()


def test_the_page_says_how_long_the_rest_takes_at_each_kernels_own_pace() -> None:
    """Whoever had twenty minutes, and six of ten not decided, asked how many more he needs."""
    unreached = msgspec.structs.replace(
        answer("xfs/default", verdict=CaseVerdict.UNKNOWN, name="b"), reason=""
    )
    half = (answer("xfs/default"), unreached)
    assert "takes about 10 more minutes" in paced(600, answers=[half])
    assert "takes about 12 more minutes" in paced(600, 90, answers=[half, half])
    assert "takes about 10 more minutes" in paced(600, 90, answers=[half, half[:1]])
    for text in (
        paced(600, answers=[half[:1]]),  # nothing is left
        paced(600, 90, answers=[half, (unreached,)]),  # of one kernel the pace is not known
        paced(600, 90, answers=[half, ()]),
        paced(600, answers=[(answer("xfs/default"), OPEN)]),  # more than time is lacking
    ):
        assert "At the pace so far" not in text


def test_a_verdict_says_which_run_was_begun_anew() -> None:
    """Beside a kernel that kept its answers, the others' were of another installation, without a word."""
    of = sweep((answer("xfs/default"),), (answer("xfs/default"),))
    first, second = of.kernels
    anew = replace(of, kernels=(first, msgspec.structs.replace(second, anew="mkfs.xfs differs")))
    text = verdict_page(anew).text()
    assert "6.2: begun anew, so its answers are of this installation: mkfs.xfs differs" in text
    assert [v["begun_anew"] for v in json.loads(verdict_page(anew).json())["verdicts"]] == [
        "",
        "mkfs.xfs differs",
    ]


def test_two_kernels_of_one_name_are_told_apart() -> None:
    """Of two builds of one tree, nothing but the order said which had which answer."""
    of = sweep((answer("xfs/default"),), (answer("xfs/default", NEW),), (answer("xfs/default"),))
    asked = ("/k/plain/image", "/k/kasan/image", "debian-6.12")
    same = [
        msgspec.structs.replace(k, item=item, name="linux at 1a2b3c" if "/" in item else item)
        for k, item in zip(of.kernels, asked, strict=True)
    ]
    found = replace(of, kernels=tuple(same))
    titles = ["linux at 1a2b3c (plain/image)", "linux at 1a2b3c (kasan/image)", "debian-6.12"]
    assert [k.title for k in found.kernels] == titles
    assert [k.title for k in replace(found, finished="x").kernels] == titles, "once"
    assert f"xfs/default on {titles[1]}" in verdict_page(found).text()
    rows = list(csv.DictReader(io.StringIO(verdict_csv(found))))
    assert [(row["kernel"], row["asked"]) for row in rows] == list(zip(titles, asked, strict=True))
