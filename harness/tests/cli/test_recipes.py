"""The recipes for CI jobs and for the container image: what they say exists, and fits what is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

import harness
from harness.cli import main
from harness.kernels.build import TOOLS
from harness.patches.ran import Piece
from harness.plan import Plan
from harness.report import write_reports
from harness.store import RunStore
from harness.tests.report.demo import run_info
from harness.tests.there import there

VMS = Path(harness.__file__).parent.parent / "vms"
RECIPES = sorted((VMS / "ci").glob("*.yml"))
OF_PATCHES = sorted((VMS / "ci" / "patch").glob("*.yml"))
OF_PROGRAMS = sorted((VMS / "ci" / "program").glob("*.yml"))
OF_RUNS = [*RECIPES, *OF_PROGRAMS]


def id_of(recipe: Path) -> str:
    return f"{recipe.parent.name}-{recipe.stem}"


def lines() -> Iterator[tuple[str, str]]:
    """Every line of a recipe that calls powercut, commented ones and the Containerfile's, too."""
    for recipe in (*OF_RUNS, *OF_PATCHES):
        for line in recipe.read_text().splitlines():
            if found := re.search(r"^[\s#-]*(?:run: )?(powercut [^|>]*)", line):
                plain = found[1].replace('"$@"', "--module fs/ext4/ext4.ko")
                yield recipe.name, plain.replace("$MINUTES", "20")


def parsed(line: str) -> None:
    """Parse a command line as click does, without running it. Raises click.ClickException."""
    context, words = click.Context(main, info_name="powercut"), shlex.split(line)[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        _, below, words = command.resolve_command(context, words)
        assert below is not None
        command, context = below, click.Context(below, parent=context)
    parser = command.make_parser(context)
    values, left, _ = parser.parse_args(list(words))
    assert not left, left
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice | click.types.FloatParamType) and parameter.name in values:
            parameter.type_cast_value(context, values[parameter.name])


@pytest.mark.parametrize(("recipe", "line"), list(lines()))
def test_each_command_and_option_of_a_recipe_exists(recipe: str, line: str) -> None:
    parsed(line)


def test_a_line_with_an_option_that_does_not_exist_is_found() -> None:
    for wrong in ("powercut run --mintues 3", "powercut nun -w quick", "powercut run --minutes many"):
        with pytest.raises(click.ClickException):
            parsed(wrong)


@pytest.mark.parametrize("recipe", OF_PATCHES, ids=lambda r: r.name)
def test_a_job_for_patches_installs_what_builds_a_kernel(recipe: Path) -> None:
    installed = there(re.search(r"apt-get install (.*)", recipe.read_text()))
    assert set(TOOLS.values()) - set(installed[1].split()) == set()


STEPS = {
    "github.yml": r"name: Build the kernels[^|]*run: \|\n((?: {10}.*\n)+)",
    "gitlab.yml": r"- \|\n((?: {6}.*\n)+)",
}


@pytest.mark.parametrize("recipe", OF_PATCHES, ids=lambda r: r.name)
@pytest.mark.parametrize("code", [0, 1, 3, 4, 5, 125])
def test_a_job_for_patches_asks_about_the_commits_of_the_push(
    recipe: Path, code: int, tmp_path: Path
) -> None:
    """And ends as `patch` does; what it publishes is the page of that series."""
    found = there(re.search(STEPS[recipe.name], recipe.read_text()))
    fakes = {"apt-get": "exit 0", "git": "exit 0", "powercut": 'echo "$*" >said; exit "$ENDS"'}
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    given = {"BASE": "b" * 40, "CI_MERGE_REQUEST_DIFF_BASE_SHA": "b" * 40, "MINUTES": "20", "ENDS": str(code)}
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = ["sh", "-euc", textwrap.dedent(found[1])]
    done = subprocess.run(script, cwd=tmp_path, env=given | path, capture_output=True, check=False)
    assert (tmp_path / "said").read_text() == f"patch . {'b' * 40}..HEAD --minutes 20\n"
    assert done.returncode == (0 if code in (4, 5) and recipe.name == "github.yml" else code)
    if recipe.name == "gitlab.yml":
        assert "exit_codes: [4, 5]" in recipe.read_text()


@pytest.mark.parametrize("recipe", OF_PATCHES, ids=lambda r: r.name)
def test_a_job_for_patches_publishes_what_is_written(recipe: Path) -> None:
    published = set(re.findall(r'"\$1/([\w.]+)"', recipe.read_text()))
    assert published <= {"report.html", "junit.xml", "summary.md", "patch.json"}
    assert {"report.html", "junit.xml", "summary.md"} <= published


def test_a_job_for_patches_marks_changed_lines_that_nothing_ran(tmp_path: Path) -> None:
    found = there(
        re.search(r"name: Reports\n.*?run: \|\n((?: {10}[^\n]*\n)+)", OF_PATCHES[0].read_text(), re.DOTALL)
    )
    series = tmp_path / "reports/runs/20261126-160000-patch"
    series.mkdir(parents=True)
    for name in ("report.html", "junit.xml", "summary.md"):
        (series / name).write_text("")
    pieces = [Piece("fs/ext4/inode.c", 12, 15, "ext4_sync")] * 12
    (series / "patch.json").write_bytes(msgspec.json.encode({"lines": {"not_run": pieces}}))
    (tmp_path / "powercut").write_text("#!/bin/sh\n")
    (tmp_path / "powercut").chmod(0o755)
    given = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(tmp_path / "told")}
    script = ["sh", "-euc", textwrap.dedent(found[1])]
    done = subprocess.run(script, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    line = "::warning file=fs/ext4/inode.c,line=12,endLine=15::Nothing ran ext4_sync() here"
    assert done.stdout.splitlines() == [line] * 10


OF_IMAGES = {
    "github.yml": (r"run: \|\n((?: {10}.*\n)+)", "ghcr.io/acme-labs/powercut:latest", "docker"),
    "gitlab.yml": (r"- \|\n((?: {6}.*\n)+)", "registry.example.org/acme/fs/powercut:latest", "buildah"),
}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_a_job_builds_its_own_image_and_keeps_it(name: str, tmp_path: Path) -> None:
    """The recipes wanted an image that somebody had to build and push by hand; and an owner with capital
    letters gives no name of an image.
    """
    step, image, builder = OF_IMAGES[name]
    found = there(re.search(step, (VMS / "ci" / "image" / name).read_text()))
    tell = f'echo "${{0##*/}} $*" | head -n 1 >>{tmp_path}/said'
    source = tmp_path / "source"
    shutil.copytree(VMS / "container", source / "vms/container")
    shutil.copy(VMS / "packages.toml", source / "vms")
    wheel = f"mkdir -p {source}/dist; : >{source}/dist/powercut-1-py3-none-any.whl"
    fakes = {
        "git": f'{tell}; [ "$1" = clone ] && ln -s {source} powercut',
        "docker": f'{tell}; [ "$1" = run ] && {wheel} || :',
        "make": f"{tell}; {wheel}",
        **dict.fromkeys(("apt-get", "buildah"), tell),
    }
    for program, text in fakes.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    given = {
        "GITHUB_REPOSITORY_OWNER": "Acme-Labs",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "told"),
        "TOKEN": "t",
        "GITHUB_ACTOR": "me",
        "SOURCE": "https://example.org/powercut.git",
        "POWERCUT_SOURCE": "https://example.org/powercut.git",
        "CI_REGISTRY": "registry.example.org",
        "CI_REGISTRY_IMAGE": "registry.example.org/acme/fs",
        "CI_REGISTRY_USER": "me",
        "CI_REGISTRY_PASSWORD": "t",
        "PATH": f"{tmp_path}:/usr/bin:/bin",
    }
    script = ["sh", "-euc", textwrap.dedent(found[1])]
    done = subprocess.run(script, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text()
    assert f"{builder} build --tag {image} " in said
    assert said.splitlines()[-1] == f"{builder} push -q {image}"
    told = tmp_path / "told"
    assert image in (told.read_text() if told.exists() else done.stdout)


def test_both_recipes_run_a_module_and_a_kernel_of_the_user() -> None:
    assert [r.name for r in RECIPES] == ["github.yml", "gitlab.yml"]
    for recipe in RECIPES:
        told = [line for name, line in lines() if name == recipe.name]
        assert any("--module " in line for line in told)
        assert any("--kernel " in line and "--modules " in line for line in told)


@pytest.mark.parametrize("recipe", OF_RUNS, ids=id_of)
def test_the_reports_that_a_recipe_publishes_are_written(recipe: Path, tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "ci", run_info()) as store:
        store.finish()
        write_reports(store)
    text = recipe.read_text()
    named = re.findall(r"reports/latest/([\w.]+)", text)
    assert {"report.html", "junit.xml", "summary.md"} <= set(named)
    assert [name for name in named if not (tmp_path / "latest" / name).is_file()] == []


@pytest.mark.parametrize("recipe", [*OF_RUNS, *OF_PATCHES], ids=id_of)
def test_the_cache_that_a_job_keeps_is_the_one_that_it_uses(recipe: Path, tmp_path: Path) -> None:
    """`github.workspace` is a path of the runner, which a job in a container does not have; and a job that
    failed kept nothing.
    """
    text = recipe.read_text()
    if recipe.name == "gitlab.yml":
        assert "POWERCUT_CACHE: $CI_PROJECT_DIR/.powercut-cache\n" in text
        assert "paths: [.powercut-cache/]\n    when: always\n" in text
        return
    (step,) = re.findall(r"- run: (.*GITHUB_ENV.*)", text)
    told = tmp_path / "env"
    given = {"GITHUB_ENV": str(told), "PATH": "/usr/bin:/bin"}
    subprocess.run(["sh", "-euc", step], cwd=tmp_path, env=given, check=True)
    assert told.read_text() == f"POWERCUT_CACHE={tmp_path}/.powercut-cache\n"
    assert "github.workspace }}" not in text
    used = re.findall(r"- uses: actions/cache(\S+)\n((?: {8}.*\n)+)", text)
    assert [name for name, _ in used] == ["/restore@v4", "/save@v4"]
    assert all("path: .powercut-cache\n" in given for _, given in used)
    assert "if: always()" in used[1][1]


def report_steps(recipe: Path) -> str:
    """What a recipe does after the run, as a shell script."""
    text = recipe.read_text()
    if found := re.search(r"name: Reports\n(?:.*\n)*? *run: \|\n((?: {10}.*\n)+)", text):
        return textwrap.dedent(found[1])
    found = there(re.search(r"after_script:\n((?: {4}.*\n)+)", text))
    steps = re.findall(r"^    - (.*)$", found[1], re.MULTILINE)
    return "".join(f"{step[1:-1] if step.startswith(chr(39)) else step}\n" for step in steps)


@pytest.mark.parametrize("recipe", OF_RUNS, ids=id_of)
def test_a_job_that_came_to_no_run_says_so(recipe: Path, tmp_path: Path) -> None:
    """`cp: cannot stat 'reports/latest/report.html'` hid the error of the step before."""
    done = subprocess.run(
        ["sh", "-eu"],
        input=report_steps(recipe),
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "GITHUB_STEP_SUMMARY": str(tmp_path / "step")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "there is no run" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", OF_RUNS, ids=id_of)
def test_the_reports_of_a_run_that_was_killed_are_published(recipe: Path, tmp_path: Path) -> None:
    """It had written none, and the job showed no test and no page."""
    with RunStore.create(tmp_path / "reports", "ci", run_info()) as store:
        store.put_plan(Plan(configurations=["ext4/ordered"], workloads=["append-fsync"]))
    programs = Path(sys.executable).parent
    given = {"PATH": f"{programs}:/usr/bin:/bin", "GITHUB_STEP_SUMMARY": str(tmp_path / "step")}
    done = subprocess.run(
        ["sh", "-euc", report_steps(recipe)],
        cwd=tmp_path,
        env={**given, "POWERCUT_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"junit.xml", "report.html", "run.tar.zst"} <= {f.name for f in tmp_path.glob("powercut-report/*")}


FAKES = {
    "apt-get": "exit 0",
    "apt-cache": 'printf "linux-headers-6.12.%s+deb13-amd64 - headers\\n" 9 117 57',
    "make": 'echo "make $*" >>"$SAID"; touch fs/ext4/ext4.ko; exit "$MAKES"',
    "powercut": 'echo "powercut $*" >>"$SAID"; [ "$1" = run ] || exit "${TRIES:-0}"; exit "$ENDS"',
}
"""What the step of a recipe calls."""


def cut_the_power(recipe: Path, tmp_path: Path, ends: int, makes: int = 0, tries: int = 0) -> tuple[int, str]:
    """The code of the step that builds the module and runs powercut, which ends so; and what was called."""
    tools, said = tmp_path / "bin", tmp_path / "said"
    tools.mkdir()
    (tmp_path / "fs" / "ext4").mkdir(parents=True)
    for name, text in FAKES.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    done = subprocess.run(
        [VMS / "ci" / "try.sh", recipe, tmp_path],
        env={
            "PATH": f"{tools}:/usr/bin:/bin",
            "SAID": str(said),
            "ENDS": str(ends),
            "MAKES": str(makes),
            "TRIES": str(tries),
        },
        capture_output=True,
        check=False,
    )
    return done.returncode, said.read_text()


@pytest.mark.parametrize("recipe", OF_RUNS, ids=id_of)
@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5])
def test_the_step_ends_as_the_run_does(recipe: Path, code: int, tmp_path: Path) -> None:
    """5 is passed, by GitHub's step itself and by what GitLab's job allows: see `test_a_slow_runner_...`."""
    passed = code == 5 and recipe.name == "github.yml"
    assert cut_the_power(recipe, tmp_path, code)[0] == (0 if passed else code)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_the_module_of_the_repository_is_built_and_tested(recipe: Path, tmp_path: Path) -> None:
    """Both recipes ran Debian's own kernel: a job was green whatever the repository held."""
    code, said = cut_the_power(recipe, tmp_path, 0)
    built, run = said.splitlines()
    assert code == 0
    assert built == f"make -C /usr/src/linux-headers-6.12.117+deb13-amd64 M={tmp_path}/fs/ext4 modules"
    assert "--kernel debian-6.12 --module fs/ext4/ext4.ko" in run


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_a_module_that_does_not_build_fails_the_job(recipe: Path, tmp_path: Path) -> None:
    code, said = cut_the_power(recipe, tmp_path, 0, makes=2)
    assert code == 2
    assert "powercut" not in said


@pytest.mark.parametrize("recipe", OF_PROGRAMS, ids=id_of)
def test_the_program_of_the_repository_is_tested(recipe: Path, tmp_path: Path) -> None:
    code, said = cut_the_power(recipe, tmp_path, 0)
    tried, run = said.splitlines()
    assert (code, tried) == (0, "powercut try crash/my-db")
    assert run.startswith("powercut run -c any/linux,ext4/ordered,xfs/default,btrfs/default -w crash/my-db ")


@pytest.mark.parametrize("recipe", OF_PROGRAMS, ids=id_of)
def test_a_program_that_fails_without_a_power_cut_fails_the_job(recipe: Path, tmp_path: Path) -> None:
    code, said = cut_the_power(recipe, tmp_path, 0, tries=1)
    assert (code, "powercut run" in said) == (1, False)


def test_a_trial_of_the_image_takes_no_folder_of_the_host_along() -> None:
    """TMPDIR named one that the image does not have, and nothing could be started."""
    text = (VMS / "container" / "try.sh").read_text()
    (started,) = re.findall(r"\benv (.*?) sh -euc", text)
    assert {"TMPDIR", "TMP", "TEMP"} <= set(re.findall(r"-u (\w+)", started))


def test_the_container_gets_the_packages_of_the_table(tmp_path: Path) -> None:
    """The script reads TOML with awk: it must read what a parser reads."""
    checkout = tmp_path / "checkout"
    (checkout / "dist").mkdir(parents=True)
    (checkout / "dist" / "powercut-0.1.0-py3-none-manylinux_2_34_x86_64.whl").write_bytes(b"")
    shutil.copytree(VMS / "container", checkout / "vms" / "container")
    shutil.copy(VMS / "packages.toml", checkout / "vms")
    context = tmp_path / "context"
    script = checkout / "vms" / "container" / "build.sh"
    subprocess.run(["sh", script, "--context", context], check=True)
    table = msgspec.toml.decode((VMS / "packages.toml").read_bytes())["container"]
    assert (context / "packages").read_text().split() == list(table)
    assert all(table.values()), "each has its reason"
    files = {p.name for p in context.iterdir()}
    assert {"Containerfile", "install.sh", "packages"} < files
    copied = there(re.search(r"^COPY (.*) /tmp", (context / "Containerfile").read_text(), re.MULTILINE))
    assert all(list(context.glob(name)) for name in copied[1].split())


def test_the_container_has_what_the_harness_imports() -> None:
    """A dependency that pyproject.toml gets is one more package of the image."""
    project = msgspec.toml.decode((VMS.parent / "pyproject.toml").read_bytes())["project"]
    table = msgspec.toml.decode((VMS / "packages.toml").read_bytes())["container"]
    wanted = {"python3-" + re.split(r"[><=~ ]", line)[0] for line in project["dependencies"]}
    assert wanted - table.keys() == set()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_slow_runner_is_no_failure_in_any_recipe(recipe: Path) -> None:
    """GitLab's tolerated exit code 5, the end of the time, and GitHub's was red."""
    text = recipe.read_text()
    assert "--minutes" in text
    assert re.search(r"exit_codes: \[5\]|-eq 5 \] \|\| exit \$code", text)
