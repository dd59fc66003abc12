"""A directory of very many tiny files, and a hard-linked backup of it, as `cp -al` makes one.

Argument: `root` (an empty directory), `points` (numbers of entries, ascending, at which the clock is read).
"""

import json
import os
import sys
import time

CONTENT = b"tiny\n"


def drop_caches() -> None:
    """Write everything and forget it; where that is not allowed (a test on the host), only write."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3")
    except OSError:
        return


def fill(root: str, points: list[int]) -> list[float]:
    """Create the files; seconds until each of the points was reached, the last with a sync(2)."""
    os.mkdir(root)
    marks, begun = set(points), time.monotonic()
    times = []
    for number in range(1, points[-1] + 1):
        descriptor = os.open(f"{root}/message-{number:07}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, CONTENT)
        os.close(descriptor)
        if number in marks:
            times.append(time.monotonic() - begun)
    os.sync()
    times[-1] = time.monotonic() - begun
    return times


def back_up(root: str, backup: str, points: list[int]) -> list[float]:
    """A hard link for each file, in the order of readdir(3), from an empty cache; as `fill`."""
    drop_caches()
    os.mkdir(backup)
    marks, begun = set(points), time.monotonic()
    times = []
    with os.scandir(root) as entries:
        for number, entry in enumerate(entries, 1):
            entry.stat(follow_symlinks=False)
            os.link(entry.path, f"{backup}/{entry.name}")
            if number in marks:
                times.append(time.monotonic() - begun)
    os.sync()
    times[-1] = time.monotonic() - begun
    return times


def main(given: dict[str, object]) -> dict[str, list[float]]:
    """Seconds at each point."""
    root, points = str(given["root"]), [int(str(p)) for p in list(given["points"])]  # type: ignore[call-overload]  # JSON
    created = fill(f"{root}/files", points)
    linked = back_up(f"{root}/files", f"{root}/backup", points)
    count = len(os.listdir(f"{root}/backup"))
    if count != points[-1]:
        raise RuntimeError(f"the backup has {count} entries, not {points[-1]}")
    return {"create_s": created, "backup_s": linked}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
