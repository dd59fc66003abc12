#!/bin/sh
# btrfs: fsync of a directory that changed names with another one loses the name that it had, which had been synced.
#
#   FSYNC=1             the directory is synced by its new name: the default
#   FSYNC=0             control: it is not, and both names are there, or the old one
#   BOTH=1              control: the other directory was synced, too, before they changed names
#   FILES=1             A and B are files
#   OPTIONS=...         mount options: treelog, the default of btrfs, unless given
#
# Needs root, loop devices, dm-log-writes, btrfs-progs and python3 (for renameat2). Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
FSYNC=${FSYNC:-1} BOTH=${BOTH:-0} FILES=${FILES:-0} OPTIONS=${OPTIONS:-treelog}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd awk python3 mkfs.btrfs btrfs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-log-writes btrfs || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	dmsetup remove --retry "$name-log" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

# --- a disk with a volatile write cache ----------------------------------------------------------

# dm-log-writes logs a write when a flush that was sent after its completion has made it durable, a FUA write when it
# is complete: so the log up to a mark is what is on the disk for certain if the power fails then.
disk_on() {
	must cp --sparse=always "$dir/base" "$dir/disk"
	must truncate -s 256M "$dir/log"
	disk=$(losetup -f --show "$dir/disk") && log=$(losetup -f --show "$dir/log") || fail "no loop devices"
	must dmsetup create "$name-log" --table "0 $(blockdev --getsz "$disk") log-writes $disk $log"
}

mark() {
	must dmsetup message "$name-log" 0 mark "$1"
}

disk_off() {
	must umount "$dir/mnt"
	must dmsetup remove --retry "$name-log"
	must losetup -d "$disk"
	must losetup -d "$log"
}

# power_cut FROM UNTIL: $dir/after becomes what the disk held when UNTIL was logged; prints the log from FROM on.
# The log is in sectors of 512 bytes (drivers/md/dm-log-writes.c). Sector 0: magic, version, number of entries. An
# entry is a sector with place, length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK), length of the mark's text, and
# that text; then, unless it is a discard, the data.
power_cut() {
	from=$1 until=$2 at=1 shown= later=0
	must cp --sparse=always "$dir/base" "$dir/after"
	for entry in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$dir/log") - 1))); do
		set -- $(od -An -v -tu8 -j$((at * 512)) -N32 "$dir/log")
		text= what=
		[ $(($3 & 1)) = 0 ] || what="$what FLUSH"
		[ $(($3 & 2)) = 0 ] || what="$what FUA"
		[ $(($3 & 4)) = 0 ] || what="$what DISCARD"
		if [ $(($3 & 8)) != 0 ]; then
			text=$(dd if="$dir/log" bs=1 skip=$((at * 512 + 32)) count="$4" status=none | tr -d '\0')
		fi
		[ "$text" != "$from" ] || shown=yes
		if [ -n "$shown" ]; then
			if [ -n "$text" ]; then
				echo "  $entry: mark \"$text\""
			else
				echo "  $entry: sector $1, $2 sectors$what"
			fi
		fi
		if [ $later = 0 ] && [ $(($3 & 12)) = 0 ] && [ "$2" != 0 ]; then
			must dd if="$dir/log" of="$dir/after" bs=512 skip=$((at + 1)) seek="$1" count="$2" conv=notrunc status=none
		fi
		# What came later is shown a little, but not replayed.
		if [ $later != 0 ] || [ "$text" = "$until" ]; then
			later=$((later + 1))
			[ $later -le 8 ] || return 0
		fi
		at=$((at + 1))
		[ $(($3 & 4)) != 0 ] || at=$((at + $2))
	done
	[ $later != 0 ] || fail "the log has no mark $until"
}

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
must truncate -s 128M "$dir/base"
must mkfs.btrfs -q -f -K "$dir/base"
disk_on
must mount -t btrfs -o "$OPTIONS" "/dev/mapper/$name-log" "$dir/mnt"
cd "$dir/mnt" || fail "no $dir/mnt"
if [ "$FILES" = 1 ]; then
	must touch A B
else
	must mkdir A
	must mkdir B
fi
must sync A # sync(1) of a name is fsync(2)
[ "$BOTH" = 0 ] || must sync B
# renameat2(2): AT_FDCWD is -100, RENAME_EXCHANGE is 2.
must python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(-100, b"A", -100, b"B", 2):
    raise SystemExit(os.strerror(ctypes.get_errno()))
'
echo "before the power cut: A is inode $(stat -c %i A), B is inode $(stat -c %i B)"
mark fsync-called
if [ "$FSYNC" = 1 ]; then
	must sync B
fi
mark fsync-returned
cd /
disk_off

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), btrfs, $OPTIONS, FSYNC=$FSYNC, BOTH=$BOTH, FILES=$FILES. What reached the disk, from fsync of B on:"
power_cut fsync-called fsync-returned
echo "the log tree that recovery will find:"
btrfs inspect-internal dump-tree "$dir/after" 2>/dev/null |
	sed -n '/^log tree key/,/^total bytes/s/^[[:space:]]*item [0-9]* key (\([^)]*\)).*/  \1/p'
btrfs device scan --forget >&2 # the same file system, seen on another device a moment ago
must mount -t btrfs -o loop "$dir/after" "$dir/mnt"
echo "after the power cut:"
(cd "$dir/mnt" && find . -mindepth 1 -exec stat -c '  %n: inode %i' {} +)
if [ -e "$dir/mnt/A" ]; then
	echo "KEPT: after the power cut there is an A"
else
	echo "BROKEN: A had been synced, and changed names with B; after the power cut there is no A"
fi
