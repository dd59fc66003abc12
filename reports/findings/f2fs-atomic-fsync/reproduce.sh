#!/bin/sh
# F2FS: fsync after the commit of an atomic write returns while the node block that the commit wrote is still on its way
# to the disk.
#
#   ATOMIC=1   4 KiB of f are overwritten by an atomic write, which is committed; then f is synced: the default
#   ATOMIC=0   control: the same write without F2FS_IOC_START_ATOMIC_WRITE and F2FS_IOC_COMMIT_ATOMIC_WRITE
#   SYNC=...   fsync or fdatasync
#
# Needs root, loop devices, dm-delay, dm-log-writes, perl and f2fs-tools. Prints BROKEN or KEPT; exits with 2 if it could
# not tell.
set -u
ATOMIC=${ATOMIC:-1} SYNC=${SYNC:-fsync}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd cmp awk perl mkfs.f2fs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-delay dm-log-writes f2fs || : # may be loaded already, or built in
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
# can take its time over writes, but not over reads and flushes: `slow 4000` makes it four seconds for each.
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
must mkfs.f2fs -q -f -t 0 "$dir/base"
must dd if=/dev/urandom of="$dir/wanted" bs=4096 count=8 status=none
disk_on
must mount -t f2fs "/dev/mapper/$name-log" "$dir/mnt"
must cp "$dir/wanted" "$dir/mnt/f"
must sync # a checkpoint
must dd if="$dir/wanted" of="$dir/mnt/other" bs=4096 count=1 conv=fsync status=none # or the next fsync has number 0
perl -e 'print "N" x 4096' >"$dir/new" || fail "no perl"
must dd if="$dir/new" of="$dir/wanted" bs=4096 conv=notrunc status=none
slow 4000
mark called
# System calls 74 and 75 of x86-64 are fsync and fdatasync.
must perl -e '
	($file, $atomic, $call) = @ARGV;
	open(F, "+<", $file) or die $!;
	!$atomic or ioctl(F, 0xf501, 0) or die "start: $!";
	syswrite(F, "N" x 4096) == 4096 or die $!;
	!$atomic or ioctl(F, 0xf502, 0) or die "commit: $!";
	syscall($call, fileno(F)) == 0 or die "sync: $!";
' "$dir/mnt/f" "$ATOMIC" "$([ "$SYNC" = fsync ] && echo 74 || echo 75)"
mark returned
slow 0
disk_off

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), f2fs, ATOMIC=$ATOMIC, SYNC=$SYNC. What reached the disk, from the first call on:"
power_cut called returned
must mount -t f2fs -o loop "$dir/after" "$dir/mnt"
if cmp -s "$dir/wanted" "$dir/mnt/f"; then
	echo "KEPT: after the power cut, f holds what $SYNC acknowledged"
else
	echo "BROKEN: the commit and $SYNC had returned, and after the power cut f does not hold what was written"
fi
