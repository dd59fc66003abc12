"""Container images: what their layers come to, and what is refused."""

from __future__ import annotations

import contextlib
import json
import tarfile
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.host.oci import merged, read_image, unpacked_layers
from harness.tests.host.images import Layout, file, folder, layout, link, saved, sha, tar

BASE = tar(folder("etc"), file("etc/a", b"old"), file("etc/b", b"b"), file("d/x", b"x"), file("d/y/z", b"z"))


def root(path: Path, scratch: Path) -> dict[str, str]:
    """The merged root: contents of files, targets of links behind an arrow, `/` for directories."""
    scratch.mkdir(exist_ok=True)
    with contextlib.ExitStack() as opened:
        plain = unpacked_layers(read_image(path), scratch)
        tree = merged(path, [opened.enter_context(tarfile.open(layer)) for layer in plain])
        return {
            name: "/"
            if entry.info.isdir()
            else f"-> {entry.info.linkname}"
            if entry.info.issym()
            else entry.read().decode()
            for name, entry in tree.items()
        }


def test_later_layers_replace_files_and_hide_them(tmp_path: Path) -> None:
    upper = tar(file("./etc/a", b"new"), file("d/y/.wh.z"), file("etc/.wh.b"), file("etc/c", b"c"))
    assert root(layout(tmp_path / "i.tar", BASE, upper), tmp_path / "s") == {
        "etc": "/",
        "etc/a": "new",
        "etc/c": "c",
        "d": "/",
        "d/x": "x",
        "d/y": "/",
    }


def test_a_whiteout_hides_a_directory_with_all_that_is_in_it(tmp_path: Path) -> None:
    found = root(layout(tmp_path / "i.tar", BASE, tar(file(".wh.d"))), tmp_path / "s")
    assert sorted(found) == ["etc", "etc/a", "etc/b"]


def test_an_opaque_directory_has_nothing_of_lower_layers(tmp_path: Path) -> None:
    """Wherever it stands among the entries, those of its own layer stay."""
    upper = tar(file("d/own", b"o"), file("d/.wh..wh..opq"))
    found = root(layout(tmp_path / "i.tar", BASE, upper), tmp_path / "s")
    assert sorted(name for name in found if name.startswith("d")) == ["d", "d/own"]


def test_a_file_replaces_a_directory_with_all_that_is_in_it(tmp_path: Path) -> None:
    found = root(layout(tmp_path / "i.tar", BASE, tar(file("d", b"file"))), tmp_path / "s")
    assert found["d"] == "file"
    assert not any(name.startswith("d/") for name in found)


def test_a_hard_link_keeps_its_file_when_the_first_name_is_gone(tmp_path: Path) -> None:
    lower = tar(file("a", b"text"), link("b", "a", tarfile.LNKTYPE))
    assert root(layout(tmp_path / "i.tar", lower, tar(file(".wh.a"))), tmp_path / "s") == {"b": "text"}


@pytest.mark.parametrize("packed", ["", "+gzip", "+zstd"])
def test_a_layer_may_be_packed(tmp_path: Path, packed: str) -> None:
    assert root(layout(tmp_path / "i.tar", BASE, packed=packed), tmp_path / "s")["etc/a"] == "old"


def test_docker_save_gives_the_same_image_as_a_layout(tmp_path: Path) -> None:
    upper = tar(file("etc/.wh.b"))
    one, other = layout(tmp_path / "oci.tar", BASE, upper), saved(tmp_path / "docker.tar", BASE, upper)
    assert read_image(one).identity == read_image(other).identity
    assert root(one, tmp_path / "1") == root(other, tmp_path / "2")


def test_of_several_platforms_this_host_s_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    made = Layout()
    made.add(tar(file("for", b"amd64")))
    made.add(tar(file("for", b"arm64")), platform={"os": "linux", "architecture": "arm64"})
    made.add(tar(file("for", b"nobody")), platform={"os": "unknown", "architecture": "unknown"})
    assert root(made.write(tmp_path / "i.tar"), tmp_path / "1") == {"for": "arm64"}
    made.manifests = [
        made.blob(
            json.dumps({"manifests": made.manifests}).encode(), "application/vnd.oci.image.index.v1+json"
        )
    ]
    assert root(made.write(tmp_path / "i.tar"), tmp_path / "2") == {"for": "arm64"}
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UsageError, match="it has 0 images for linux/riscv64"):
        read_image(tmp_path / "i.tar")


def test_an_image_for_another_platform_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path / "i.tar", BASE)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UsageError, match="it is for linux/amd64, and this host is linux/arm64"):
        read_image(path)


def test_a_layer_with_other_contents_than_its_digest_says_is_refused(tmp_path: Path) -> None:
    made = Layout()
    made.add(BASE, packed="")
    made.blobs[f"blobs/sha256/{sha(BASE)}"] = BASE.replace(b"old", b"bad")
    path = made.write(tmp_path / "i.tar")
    with pytest.raises(UsageError, match="is damaged: its digest is sha256:"):
        root(path, tmp_path / "s")


@pytest.mark.parametrize("words", [b"diff_ids", b"layers"])
def test_a_document_with_other_contents_than_its_digest_says_is_refused(tmp_path: Path, words: bytes) -> None:
    """First the configuration, then the manifest."""
    made = Layout()
    made.add(BASE)
    name = next(name for name, data in made.blobs.items() if data.startswith(b"{") and words in data)
    made.blobs[name] += b" "
    with pytest.raises(UsageError, match="is damaged: its digest is sha256:"):
        read_image(made.write(tmp_path / "i.tar"))


def test_docker_save_with_another_configuration_than_it_names_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "i.tar", BASE)
    path.write_bytes(path.read_bytes().replace(b'"amd64"', b'"arm64"'))
    with pytest.raises(UsageError, match="is damaged: its digest is"):
        read_image(path)


def test_layers_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    path = layout(tmp_path / "i.tar", BASE, packed="+gzip+encrypted")
    with pytest.raises(UsageError, match=r"a layer is of an unknown kind: .*\+encrypted"):
        read_image(path)
    path = layout(tmp_path / "i.tar", BASE, kind="application/vnd.cncf.helm.chart.content.v1.tar")
    with pytest.raises(UsageError, match=r"a layer is of an unknown kind: .*helm"):
        read_image(path)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([file("../etc/passwd")], "../etc/passwd leaves the root"),
        ([file("a/../../x")], "leaves the root"),
        ([link("a", "../.."), file("a/x")], "a/x leaves the root by a symbolic link"),
        ([link("a", "b"), link("b", "a"), file("a/x")], "below a symbolic link that leads to itself"),
        ([link("a", "../x", tarfile.LNKTYPE)], "../x leaves the root"),
        ([link("a", "etc/shadow", tarfile.LNKTYPE)], "a hard link to etc/shadow, which is no file of it"),
    ],
)
def test_entries_that_leave_the_root_are_refused(
    tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]], says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        root(layout(tmp_path / "i.tar", tar(*entries)), tmp_path / "s")
    assert says in caught.value.what


def test_a_link_that_is_absolute_leads_into_the_root(tmp_path: Path) -> None:
    """The archive of the guest's root would be unpacked through the link, into another root."""
    merging = tar(link("lib", "/usr/lib"), file("lib/x", b"x"), file("/abs", b"a"))
    assert root(layout(tmp_path / "i.tar", merging), tmp_path / "s") == {
        "lib": "-> /usr/lib",
        "usr": "/",
        "usr/lib": "/",
        "usr/lib/x": "x",
        "abs": "a",
    }


def test_a_link_that_comes_after_what_is_below_it_takes_its_place(tmp_path: Path) -> None:
    late = tar(file("d/x", b"x"), link("d", "/elsewhere"))
    assert root(layout(tmp_path / "i.tar", late), tmp_path / "s") == {"d": "-> /elsewhere"}


def test_more_than_a_guest_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of 1 MB can unpack to 1 GB."""
    monkeypatch.setattr("harness.host.oci.LAYERS_MIB_MAX", 1)
    path = layout(tmp_path / "i.tar", tar(file("zeros", bytes(1 << 20))))
    with pytest.raises(UsageError, match="its layers are larger than 1 MiB"):
        root(path, tmp_path / "s")


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "i.tar"
    with pytest.raises(UsageError, match=r"i.tar is no image that can be used: .*No such file"):
        read_image(path)
    path.write_bytes(b"text")
    with pytest.raises(UsageError, match="cannot be read as a tar archive"):
        read_image(path)
    path.write_bytes(BASE)
    with pytest.raises(UsageError, match=r"neither index.json nor manifest.json") as caught:
        read_image(path)
    assert "docker save" in caught.value.next_step
    path.write_bytes(tar(file("index.json", b'{"manifests": 1}')))
    with pytest.raises(UsageError, match="a document of it cannot be read"):
        read_image(path)
    made = Layout()
    made.add(BASE)
    del made.blobs[next(name for name, data in made.blobs.items() if b"diff_ids" in data)]
    with pytest.raises(UsageError, match="it lacks blobs/sha256/"):
        read_image(made.write(path))
