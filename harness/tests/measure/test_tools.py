"""What the tools print, from recorded samples, and what is asked of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import GuestError
from harness.measure import bonnie, double_write, large_file, read_while_writing

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


class TestDd:
    def test_bytes_and_seconds(self) -> None:
        assert double_write.dd_result(sample("dd.txt")) == (10 << 20, 0.130907)

    def test_a_dd_that_failed_says_nothing_of_the_kind(self) -> None:
        with pytest.raises(GuestError, match="did not say"):
            double_write.dd_result("dd: failed to open '/mnt/test/f': No space left on device\n")

    def test_no_rate_is_made_of_no_time(self) -> None:
        with pytest.raises(GuestError):
            double_write.dd_result("0 bytes (0 B) copied, 0 s, Infinity B/s")


class TestFio:
    def test_rates_of_both_directions(self) -> None:
        assert large_file.throughput(sample("fio-write.json"), "write") == pytest.approx(762600727 / 1024)
        assert large_file.throughput(sample("fio-read.json"), "reread") == pytest.approx(4194304000 / 1024)

    def test_the_other_direction_is_no_answer(self) -> None:
        with pytest.raises(GuestError, match="did not read"):
            large_file.throughput(sample("fio-write.json"), "read")

    def test_a_job_that_failed_gives_no_rate(self) -> None:
        with pytest.raises(GuestError, match="error 2"):
            large_file.throughput(sample("fio-failed.txt"), "read")

    def test_what_is_no_json_is_told(self) -> None:
        with pytest.raises(GuestError, match="no result"):
            large_file.throughput("fio: unrecognized option\n", "read")

    def test_records_are_of_16_kib_and_fsync_belongs_to_what_writes(self) -> None:
        lines = {phase: large_file.job(phase, "/mnt/test/large", 64) for phase in large_file.PHASES}
        assert all("--bs=16k" in line and "--size=64m" in line for line in lines.values())
        assert [p for p, line in lines.items() if "--end_fsync=1" in line] == ["write", "rewrite"]
        assert [p for p, line in lines.items() if "--rw=read" in line] == ["read", "reread"]


class TestBonnie:
    def test_rates_by_field(self) -> None:
        found = bonnie.parse(sample("bonnie-jfs.csv"))
        assert found["9"] == 136  # per character out
        assert found["11"] == 186175  # block out
        assert found["17"] == 213666  # block in
        assert found["11 cpu"] == 77

    def test_a_rate_of_too_little_work_is_no_rate(self) -> None:
        found = bonnie.parse(sample("bonnie-ext2.csv"))
        assert "17" not in found  # +++++
        assert "26" not in found
        assert {"9", "11", "13", "15"} <= found.keys()

    def test_the_line_is_found_among_its_warnings(self) -> None:
        said = "Using uid:0, gid:0.\n" + sample("bonnie-jfs.csv")
        assert bonnie.parse(said) == bonnie.parse(sample("bonnie-jfs.csv"))

    @pytest.mark.parametrize("said", ["", "usage:\nbonnie++ [-d scratch-dir]\n", "1.98,2.00a,ext2,1\n"])
    def test_another_form_is_refused(self, said: str) -> None:
        with pytest.raises(GuestError, match="50 fields"):
            bonnie.parse(said)

    def test_what_is_asked_of_it(self) -> None:
        line = bonnie.line("/mnt/test", "ext4", bonnie.Bonnie().sizes(1))
        assert line[line.index("-d") + 1] == "/mnt/test"
        assert "-f1" in line  # its optional value must not stand apart


class TestPartitions:
    def test_two_that_do_not_overlap_and_the_signature(self) -> None:
        table = read_while_writing.partition_table(96, 512)
        assert len(table) == 512
        assert table[510:] == b"\x55\xaa"
        entries = [table[446 + 16 * i : 462 + 16 * i] for i in range(4)]
        where = [(int.from_bytes(e[8:12], "little"), int.from_bytes(e[12:], "little")) for e in entries]
        assert where == [(2048, 96 * 2048), (2048 + 96 * 2048, 512 * 2048), (0, 0), (0, 0)]
        assert [e[4] for e in entries] == [0x83, 0x83, 0, 0]
