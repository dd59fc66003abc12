#!/bin/sh
# ntfs3: what is written into a preallocated part of a file is zeros at the next mount, although fsync or fdatasync
# followed, where the write comes within the same tick of the kernel's clock as the change before it.
#
# NTFS keeps in the file's record up to where the file was written (the valid size); behind that it reads as zeros.
# ntfs_write_end compares the valid size with itself, so a write marks the inode dirty only by its new time stamps. A
# file is made, preallocated and synced, then 4 KiB are written into it and synced, 500 times. The volume is unmounted
# and mounted again: no power cut is needed.
#
#   PAUSE=0.02     control: seconds before the write
#   FS=ext4        control
#
# Needs root, a loop device, mkntfs and python3. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
PAUSE=${PAUSE:-0} FS=${FS:-ntfs3}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	rm -rf "$DIR"
}

case $FS in
ntfs3) mkfs="mkntfs -F -Q -q -T -s 512 -p 0 -H 255 -S 63" ;;
ext4) mkfs="mkfs.ext4 -q -F" ;;
*) fail "FS=$FS: ntfs3 or ext4" ;;
esac
for tool in losetup "${mkfs%% *}" mount python3; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop "$FS" || : # may be there already, or built in

mkdir "$DIR/mnt"
truncate -s 128M "$DIR/disk"
$mkfs "$DIR/disk" >/dev/null 2>&1 || fail "$mkfs failed"
mount -i -t "$FS" -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount $FS"
python3 - "$DIR/mnt" "$PAUSE" <<'END'
import os, sys, time

for n in range(500):
    file = os.open(f"{sys.argv[1]}/{n}", os.O_CREAT | os.O_RDWR)
    os.posix_fallocate(file, 0, 65536)
    os.fsync(file)
    time.sleep(float(sys.argv[2]))
    os.pwrite(file, b"x" * 4096, 0)
    os.fdatasync(file)
    os.close(file)
END
umount "$DIR/mnt"
mount -i -t "$FS" -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount $FS again"
zeros=$(python3 - "$DIR/mnt" <<'END'
import sys

print(sum(open(f"{sys.argv[1]}/{n}", "rb").read(4096) != b"x" * 4096 for n in range(500)))
END
)
echo "Linux $(uname -r), FS=$FS PAUSE=$PAUSE: $zeros of 500 files do not hold what was written"
if [ "$zeros" = 0 ]; then
	echo "KEPT: each file holds what was written and synced"
else
	echo "BROKEN: $zeros of 500 files hold zeros in place of what was written and synced, after an unmount"
fi
