#!/bin/sh
# btrfs: after a power cut a file with fs-verity that was fsynced cannot be opened.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted and the file is read.
#
#   SYNC=fsync      the default
#   SYNC=syncfs     control: everything is committed, and recovery has nothing to do
#
# Needs root, loop devices, python3 and mkfs.btrfs, and a kernel with CONFIG_FS_VERITY. Prints BROKEN or KEPT; exits with 2 if
# it could not tell.
set -u
SYNC=${SYNC:-fsync}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup python3 mkfs.btrfs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop btrfs || : # may be loaded already, or built in

dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

mkdir "$dir/mnt"
must truncate -s 128M "$dir/disk"
mkfs.btrfs -q "$dir/disk" >/dev/null 2>&1 || fail "mkfs.btrfs failed"
must mount -t btrfs -o loop "$dir/disk" "$dir/mnt"
must sync -f "$dir/mnt"
must dd if=/dev/zero of="$dir/mnt/f" bs=5000 count=1 status=none
# FS_IOC_ENABLE_VERITY, _IOW('f', 133, struct fsverity_enable_arg): version 1, SHA-256, blocks of 4096 bytes.
must python3 -c 'import fcntl, struct, sys
fcntl.ioctl(open(sys.argv[1]), 0x40806685, struct.pack("=4I112x", 1, 1, 4096, 0))' "$dir/mnt/f"
case $SYNC in
fsync) must sync "$dir/mnt/f" ;;
syncfs) must sync -f "$dir/mnt" ;;
*) fail "SYNC=$SYNC: fsync or syncfs" ;;
esac
# The power fails here. The disk's cache was flushed, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

must mount -t btrfs -o loop "$dir/after" "$dir/mnt"
echo "Linux $(uname -r), SYNC=$SYNC. After the power cut:"
ls -l "$dir/mnt"
if said=$(cat "$dir/mnt/f" 2>&1 >"$dir/read") && [ "$(wc -c <"$dir/read")" = 5000 ]; then
	echo "KEPT: what was fsynced is there"
else
	echo "BROKEN: what was fsynced cannot be read: $said"
fi
