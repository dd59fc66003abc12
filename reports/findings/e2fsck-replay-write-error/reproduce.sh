#!/bin/sh
# One write of e2fsck's journal replay fails, and e2fsck empties the journal all the same. The disk is well again, and a
# file that fsync had acknowledged is gone.
#
#   REPLAY=e2fsck    the default: e2fsck -f -y replays the journal
#   REPLAY=kernel    control: a mount replays it
#   WRITE=fails      the default: writes to one block of the inode table fail until e2fsck or the mount has ended
#   WRITE=works      control: none does
#   HOW=-y           the default: e2fsck says yes to all that it asks. HOW=-p: it decides by itself, as at boot
#
# Needs root, loop devices, device-mapper with dm-flakey, and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it could
# not tell.
set -u
REPLAY=${REPLAY:-e2fsck} WRITE=${WRITE:-fails} HOW=${HOW:--y}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup blockdev dmsetup awk dmesg mkfs.ext4 e2fsck debugfs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-mod dm-flakey ext4 || : # may be loaded already, or built in

dir=$(mktemp -d) || fail "no temporary directory"
name=replay-write-error-$$
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
must truncate -s 64M "$dir/disk"
mkfs.ext4 -q -b 4096 "$dir/disk" >&2 || fail "mkfs.ext4 failed"
must mount -t ext4 -o loop "$dir/disk" "$dir/mnt"
printf 'precious\n' >"$dir/f"
must cp "$dir/f" "$dir/mnt/f"
inode=$(stat -c %i "$dir/mnt/f")
must sync "$dir/mnt/f" # sync(1) of a file is fsync(2)
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

at=$(debugfs -R "imap <$inode>" "$dir/after" 2>/dev/null | sed -n 's/.*located at block \([0-9]*\).*/\1/p')
[ -n "$at" ] || fail "no block of the inode table is known"
device=$(losetup -f --show "$dir/after") || fail "no loop device"
sectors=$(blockdev --getsz "$device")
bad="flakey $device $((at * 8)) 0 1 1 error_writes"
[ "$WRITE" = fails ] || bad="linear $device $((at * 8))"
dmsetup create "$name" >&2 <<TABLE || fail "no device"
0 $((at * 8)) linear $device 0
$((at * 8)) 8 $bad
$((at * 8 + 8)) $((sectors - at * 8 - 8)) linear $device $((at * 8 + 8))
TABLE
dmsetup mknodes
dmesg -C 2>/dev/null || :
echo "Linux $(uname -r), $(e2fsck -V 2>&1 | head -n 1), REPLAY=$REPLAY, WRITE=$WRITE, HOW=$HOW: block $at"
if [ "$REPLAY" = e2fsck ]; then
	e2fsck -f "$HOW" "/dev/mapper/$name" >"$dir/said" 2>&1
	echo "e2fsck -f $HOW ended with $?:"
	awk 'NF && !/^Pass|^e2fsck [0-9]/ { print "  " $0 }' "$dir/said"
elif mount -t ext4 "/dev/mapper/$name" "$dir/mnt"; then
	echo "the mount succeeded"
	umount "$dir/mnt"
else
	echo "the mount was refused"
fi
must dmsetup remove --retry "$name"
# What programs hold in memory of this device is not on the disk.
must losetup -d "$device"
must mount -t ext4 -o loop "$dir/after" "$dir/mnt"
echo "what the kernel said:"
dmesg | awk '/EXT4-fs|JBD2/ { print "  " $0 }'
if [ "$(cat "$dir/mnt/f" 2>/dev/null)" = precious ]; then
	echo "KEPT: fsync had returned, and the mount of the disk that is well again has the file"
else
	echo "BROKEN: fsync had returned, and the mount of the disk that is well again has no such file"
fi
