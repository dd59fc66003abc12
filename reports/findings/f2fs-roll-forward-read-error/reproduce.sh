#!/bin/sh
# F2FS: one block that cannot be read in the first mount after a power cut, and what fsync acknowledged is gone for good,
# also once the block can be read again.
#
#   READ=fails   the default: in the first mount, the block that fsync wrote gives EIO; in the second, it is well again
#   READ=works   control: no error
#   FS=ext4      control: another file system, whose journal has the block that cannot be read
#
# Needs root, loop devices, device-mapper and f2fs-tools (or e2fsprogs). Prints BROKEN or KEPT; exits with 2 if it could
# not tell.
set -u
READ=${READ:-fails} FS=${FS:-f2fs}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev grep awk dmesg "mkfs.$FS"; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-mod "$FS" || : # may be loaded already, or built in
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
must truncate -s 100M "$dir/disk"
"mkfs.$FS" "$dir/disk" >/dev/null 2>&1 || fail "mkfs.$FS failed"
must mount -t "$FS" -o loop "$dir/disk" "$dir/mnt"
echo data >"$dir/mnt/acknowledged"
must sync "$dir/mnt/acknowledged" # sync(1) of a file is fsync(2)
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp "$dir/disk" "$dir/after"
must umount "$dir/mnt"

# The block that fsync wrote and that has the file's name: its node (F2FS), the journal's copy of the directory (ext4).
at=$(grep -abo acknowledged "$dir/after" | awk -F: 'NR == 1 { print int($1 / 4096) }')
[ -n "$at" ] || fail "no block has the name"
device=$(losetup -f --show "$dir/after") || fail "no loop device"
sectors=$(blockdev --getsz "$device")
bad="$((at * 8)) 8 error"
[ "$READ" = fails ] || bad="$((at * 8)) 8 linear $device $((at * 8))"
dmsetup create "$name" >&2 <<TABLE || fail "no device"
0 $((at * 8)) linear $device 0
$bad
$((at * 8 + 8)) $((sectors - at * 8 - 8)) linear $device $((at * 8 + 8))
TABLE
dmsetup mknodes
dmesg -C 2>/dev/null || :
if mount -t "$FS" "/dev/mapper/$name" "$dir/mnt"; then
	first=succeeds
	must umount "$dir/mnt"
else
	first=fails
fi
must dmsetup remove --retry "$name"
must mount -t "$FS" "$device" "$dir/mnt"
echo "Linux $(uname -r), $FS, READ=$READ: block $at. The first mount $first. What the kernel said:"
dmesg | awk '/F2FS-fs|EXT4-fs|JBD2/ { print "  " $0 }'
if [ "$(cat "$dir/mnt/acknowledged" 2>/dev/null)" = data ]; then
	echo "KEPT: fsync had returned, and the second mount, without an error, has the file"
else
	echo "BROKEN: fsync had returned, the first mount $first, and the second one, without an error, has no such file"
fi
