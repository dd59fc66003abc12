#!/bin/sh
# ext4 with fast_commit: fsync returns while the first blocks of its fast commit are in the disk's cache, where a power
# cut loses them, and the whole fast commit with them.
#
#   FILES=150       new files beside the one that is synced: the fast commit takes several blocks
#   FILES=0         control: it takes one block, which is written with FUA
#   FEATURE=^fast_commit    control: the same without fast commits
#
# Needs root, loop devices, dm-delay, dm-log-writes and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it could not
# tell.
set -u
FILES=${FILES-150} FEATURE=${FEATURE:-fast_commit}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd awk mkfs.ext4; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-delay dm-log-writes ext4 || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	dmsetup remove --retry "$name-log" 2>/dev/null
	dmsetup remove --retry "$name-slow" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

# --- a disk with a volatile write cache ----------------------------------------------------------

# dm-log-writes logs a write when a flush that was sent after its completion has made it durable, a FUA write when it
# is complete: so the log up to a mark is what is on the disk for certain if the power fails then. Below it, dm-delay
# can take its time over writes, but not over reads and flushes: `slow 1000` makes it a second for each.
disk_on() {
	must cp --sparse=always "$dir/base" "$dir/disk"
	must truncate -s 256M "$dir/log"
	disk=$(losetup -f --show "$dir/disk") && log=$(losetup -f --show "$dir/log") || fail "no loop devices"
	sectors=$(blockdev --getsz "$disk")
	must dmsetup create "$name-slow" --table "0 $sectors delay $disk 0 0 $disk 0 0 $disk 0 0"
	must dmsetup create "$name-log" --table "0 $sectors log-writes /dev/mapper/$name-slow $log"
}

slow() {
	must dmsetup suspend --nolockfs "$name-slow"
	must dmsetup reload "$name-slow" --table "0 $sectors delay $disk 0 0 $disk 0 $1 $disk 0 0"
	must dmsetup resume "$name-slow"
}

mark() {
	must dmsetup message "$name-log" 0 mark "$1"
}

disk_off() {
	must umount "$dir/mnt"
	must dmsetup remove --retry "$name-log"
	must dmsetup remove --retry "$name-slow"
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
must truncate -s 64M "$dir/base"
must mkfs.ext4 -q -F -b 4096 -J size=8 -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$dir/base"
disk_on
# commit=: no commit by the clock in between.
must mount -t ext4 -o commit=3600 "/dev/mapper/$name-log" "$dir/mnt"
must mkdir "$dir/mnt/d"
: >"$dir/mnt/d/kept"
must sync
for n in $(seq "$FILES"); do
	: >"$dir/mnt/d/$n"
done
echo data >>"$dir/mnt/d/kept"
slow 1000
mark fsync-called
must sync "$dir/mnt/d/kept"
mark fsync-returned
slow 0
disk_off

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), ext4, $FEATURE, $FILES other new files. What reached the disk, from fsync on:"
power_cut fsync-called fsync-returned
if ! said=$(LC_ALL=C mount -t ext4 -o loop "$dir/after" "$dir/mnt" 2>&1); then
	echo "BROKEN: fsync had returned, and after the power cut mount(2) fails: $(echo "$said" | head -n 1)"
elif [ "$(cat "$dir/mnt/d/kept")" = data ]; then
	echo "KEPT: after the power cut, kept holds what fsync acknowledged"
else
	echo "BROKEN: fsync had returned, and after the power cut kept has $(wc -c <"$dir/mnt/d/kept") bytes"
fi
