"""How long it takes to read a file while another process writes as fast as it can.

Argument: `writer` (the file that is written, over and over, from its beginning, in records of 16 KiB),
`writer_bytes` (how long it gets each time), `readers` (a name and a path each; the files are there),
`settle_s` (how long the writer runs before the first read), `reads` (of each file).
"""

import json
import os
import signal
import sys
import time

RECORD = bytes(16384)


def write_forever(path: str, length: int) -> None:
    """As `while true; do dd if=/dev/zero of=PATH bs=16384 count=N; done`."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for _ in range(length // len(RECORD)):
            os.write(descriptor, RECORD)
        os.close(descriptor)


def timed_read(path: str) -> float:
    """Seconds to read the whole file from the disk: its own pages are forgotten first, no others."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    begun = time.monotonic()
    while os.read(descriptor, 65536):
        pass
    seconds = time.monotonic() - begun
    os.close(descriptor)
    return seconds


def written_bytes() -> int:
    """That this system's file systems have sent to disks so far, in all (proc(5), /proc/vmstat: KiB)."""
    with open("/proc/vmstat") as file:
        found = dict(line.split() for line in file)
    return int(found.get("pgpgout", 0)) * 1024


def main(given: dict[str, object]) -> dict[str, float]:
    """Per reader: seconds without a writer and, the longest of `reads`, with one; what was written then."""
    readers: dict[str, str] = dict(given["readers"])  # type: ignore[call-overload]  # JSON
    settle_s, reads = float(str(given["settle_s"])), int(str(given["reads"]))
    result = {f"{name}_idle_s": timed_read(path) for name, path in readers.items()}
    child = os.fork()
    if child == 0:
        write_forever(str(given["writer"]), int(str(given["writer_bytes"])))
    try:
        time.sleep(settle_s)
        begun, before = time.monotonic(), written_bytes()
        for name, path in readers.items():
            result[f"{name}_busy_s"] = sum(timed_read(path) for _ in range(reads)) / reads
        result["written_bytes_a_second"] = (written_bytes() - before) / (time.monotonic() - begun)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return result


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
