#!/bin/sh
# F2FS: if the power fails during the fsync of a new file, the file may come back with what its blocks held before.
#
#   FS=f2fs     the file system: f2fs, the default, or ext4 as a control
#   OPTIONS=... mount options; fsync_mode=posix is F2FS's default
#
# Needs root, loop devices, dm-log-writes, f2fs-tools (e2fsprogs for FS=ext4). Prints BROKEN or KEPT; exits with 2 if
# it could not tell.
set -u
FS=${FS:-f2fs}
case $FS in
f2fs) mkfs="mkfs.f2fs -q -f -t 0" OPTIONS=${OPTIONS:-fsync_mode=posix} ;;
ext4) mkfs="mkfs.ext4 -q -F -E nodiscard" OPTIONS=${OPTIONS:-data=ordered} ;;
*) echo "reproduce.sh: FS is f2fs or ext4, not $FS" >&2 && exit 2 ;;
esac

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd cmp awk tr "${mkfs%% *}"; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-log-writes "$FS" || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$
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

# --- a disk whose writes are logged --------------------------------------------------------------

disk_on() {
	must cp "$dir/base" "$dir/disk"
	must truncate -s 256M "$dir/log"
	disk=$(losetup -f --show "$dir/disk") && log=$(losetup -f --show "$dir/log") || fail "no loop devices"
	must dmsetup create "$name" --table "0 $(blockdev --getsz "$disk") log-writes $disk $log"
}

disk_off() {
	must umount "$dir/mnt"
	must dmsetup remove --retry "$name"
	must losetup -d "$disk"
	must losetup -d "$log"
}

# power_cut MARK: $dir/after becomes what the disk may hold if the power fails after MARK, before the next flush.
# What was logged up to MARK is on it. Of what was written from there to the first FLUSH, the disk's cache has lost
# the blocks of the file, and written all others. That is for the disk to choose: only a flush orders them, and a
# write with FLUSH or FUA begins what comes later. So both of these end the replay.
# The log is in sectors of 512 bytes (drivers/md/dm-log-writes.c). Sector 0: magic, version, number of entries. An
# entry is a sector with place, length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK), length of the mark's text, and
# that text; then, unless it is a discard, the data.
power_cut() {
	wanted_mark=$1 at=1 reached='' lost=0
	must cp "$dir/base" "$dir/after"
	for entry in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$dir/log") - 1))); do
		set -- $(od -An -v -tu8 -j$((at * 512)) -N32 "$dir/log")
		data=$((at + 1))
		at=$data
		[ $(($3 & 4)) != 0 ] || at=$((at + $2))
		if [ $(($3 & 8)) != 0 ]; then
			text=$(dd if="$dir/log" bs=1 skip=$(((data - 1) * 512 + 32)) count="$4" status=none | tr -d '\0')
			[ -n "$reached" ] && echo "  $entry: mark \"$text\""
			[ "$text" != "$wanted_mark" ] || reached=yes
			continue
		fi
		if [ -n "$reached" ] && [ $(($3 & 3)) != 0 ]; then
			echo "  $entry: sector $1, $2 sectors, FLUSH or FUA: the power has failed before it"
			[ $lost != 0 ] || fail "the data of the file were not written before it"
			return 0
		fi
		[ $(($3 & 4)) = 0 ] && [ "$2" != 0 ] || continue
		must dd if="$dir/log" of="$dir/entry" bs=512 skip="$data" count="$2" status=none
		if [ -n "$reached" ] && cmp -s -n 4096 "$dir/entry" "$dir/wanted"; then
			echo "  $entry: sector $1, $2 sectors: the data of the file, lost"
			lost=$((lost + 1))
			continue
		fi
		[ -z "$reached" ] || echo "  $entry: sector $1, $2 sectors: on the disk"
		must dd if="$dir/entry" of="$dir/after" bs=512 seek="$1" conv=notrunc status=none
	done
	fail "the log has no flush after the mark $wanted_mark"
}

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
# What the disk held before: somebody else's secret.
head -c 64M /dev/zero | tr '\0' S >"$dir/base" || fail "no room in $dir"
must dd if=/dev/urandom of="$dir/wanted" bs=4096 count=1 status=none
head -c 4096 "$dir/base" >"$dir/secret"
must $mkfs "$dir/base"
disk_on
must mount -t "$FS" -o "$OPTIONS" "/dev/mapper/$name" "$dir/mnt"
# The first fsync after a mount has a bug of its own on F2FS: see f2fs-fsync-first-node.
must dd if="$dir/secret" of="$dir/mnt/other" bs=4096 conv=fsync status=none
must dmsetup message "$name" 0 mark writing
# One process writes and syncs, so that the kernel's own writeback has no time in between.
must dd if="$dir/wanted" of="$dir/mnt/f" bs=4096 conv=fsync status=none
must dmsetup message "$name" 0 mark fsync-returned
disk_off

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), $FS, $OPTIONS. The power fails during fsync:"
power_cut writing
must mount -t "$FS" -o loop "$dir/after" "$dir/mnt"
if [ ! -e "$dir/mnt/f" ]; then
	echo "KEPT: fsync had not returned, and after the power cut there is no f"
elif [ ! -s "$dir/mnt/f" ]; then
	echo "KEPT: fsync had not returned, and after the power cut f is empty"
elif cmp -s "$dir/mnt/f" "$dir/wanted"; then
	echo "KEPT: after the power cut, f holds its data"
elif cmp -s "$dir/mnt/f" "$dir/secret"; then
	echo "BROKEN: after the power cut, f holds what the disk held before mkfs"
else
	fail "after the power cut, f holds something else"
fi
