#!/bin/sh
# XFS: a mount that replays the log and is then refused, since a group's header cannot be read, leaves a clean log behind
# wrong counters: the next mount, without an error, takes them as they are.
#
#   READ=fails   the default: in the first mount, the last group's AGF gives EIO; in the second, it is well again
#   READ=works   control: no error
#
# Needs root, loop devices, device-mapper and xfsprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
READ=${READ:-fails}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev awk dmesg mkfs.xfs xfs_db xfs_repair; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-mod xfs || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=errs-$$
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	dmsetup remove --retry "$name" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

mkdir "$dir/mnt"
must truncate -s 320M "$dir/disk"
mkfs.xfs -q "$dir/disk" >&2 || fail "mkfs.xfs failed"
must mount -t xfs -o loop "$dir/disk" "$dir/mnt"
for file in 1 2 3; do
	echo data >"$dir/mnt/$file"
done
must sync "$dir/mnt/3" # sync(1) of a file is fsync(2): the log has everything
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

blocks=$(xfs_db -r -c 'sb 0' -c 'p agblocks' "$dir/after" | awk '{ print $3 }')
groups=$(xfs_db -r -c 'sb 0' -c 'p agcount' "$dir/after" | awk '{ print $3 }')
at=$(((groups - 1) * blocks * 8 + 1)) # the AGF is the second sector of a group
device=$(losetup -f --show "$dir/after") || fail "no loop device"
sectors=$(blockdev --getsz "$device")
bad="$at 1 error"
[ "$READ" = fails ] || bad="$at 1 linear $device $at"
dmsetup create "$name" >&2 <<TABLE || fail "no device"
0 $at linear $device 0
$bad
$((at + 1)) $((sectors - at - 1)) linear $device $((at + 1))
TABLE
dmsetup mknodes
dmesg -C 2>/dev/null || :
if mount -t xfs "/dev/mapper/$name" "$dir/mnt"; then
	first=succeeds
	must umount "$dir/mnt"
else
	first=fails
fi
must dmsetup remove --retry "$name"
must mount -t xfs "$device" "$dir/mnt"
must umount "$dir/mnt"
echo "Linux $(uname -r), READ=$READ: sector $at of $groups groups of $blocks blocks. The first mount $first. The kernel said:"
dmesg | awk '/XFS/ { print "  " $0 }'
echo "after a second mount, without an error, and its unmount, xfs_repair -n:"
if xfs_repair -n "$device" >"$dir/said" 2>&1; then
	echo "KEPT: the counters are right after the second mount"
else
	awk '/counted|sb_|would/ { print "  " $0 }' "$dir/said"
	echo "BROKEN: the first mount $first, the second had no error, and xfs_repair -n finds wrong counters"
fi
