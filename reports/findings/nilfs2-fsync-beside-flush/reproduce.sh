#!/bin/sh
# NILFS2: fsync(2) returns while the flush that its data needs is still under way, if another fsync has sent that flush.
#
# The files a and b are overwritten. fsync of a writes both into one segment, and sends a flush, which takes four
# seconds here. Meanwhile fsync of b is called.
#
#   WAIT=1     control: fsync of b is called when fsync of a has returned
#   LATE=1     control: b is written when the flush for a is under way, so it needs a segment of its own
#   CALL=sync  sync(2) in place of the fsync of b
#   FS=ext4    control: the same on ext4; FS=xfs: on XFS
#
# Needs root, loop devices, dm-delay, dm-log-writes and nilfs-tools. Prints BROKEN or KEPT; exits with 2 if it could not
# tell.
set -u
FS=${FS:-nilfs2} WAIT=${WAIT:-0} LATE=${LATE:-0} CALL=${CALL:-fsync}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd awk "mkfs.$FS"; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-delay dm-log-writes "$FS" || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

case $FS in
nilfs2) make=-q size=160M ;;
ext4) make="-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0" size=128M ;;
xfs) make="-q -f -K" size=400M ;;
*) fail "FS=$FS: nilfs2, ext4 or xfs" ;;
esac

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
# can take its time over flushes, but not over reads and writes: `slow 4000` makes it four seconds for each.
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
	must dmsetup reload "$name-slow" --table "0 $sectors delay $disk 0 0 $disk 0 0 $disk 0 $1"
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
must truncate -s "$size" "$dir/base"
must "mkfs.$FS" $make "$dir/base"
disk_on
must mount -t "$FS" "/dev/mapper/$name-log" "$dir/mnt"
cd "$dir/mnt" || fail "no $dir/mnt"
echo old >a
echo old >b
must sync
sleep 1
echo new >a
[ "$LATE" = 1 ] || echo new >b
slow 4000
mark fsync-of-a-called
sync a & # sync(1) of a file is fsync(2)
other=$!
sleep 2
[ "$LATE" = 0 ] || echo new >b
if [ "$WAIT" = 1 ]; then
	must wait "$other"
	other=
fi
case $CALL in
fsync) must sync b ;;
sync) must sync ;;
*) fail "CALL=$CALL: fsync or sync" ;;
esac
mark fsync-of-b-returned
[ -z "$other" ] || must wait "$other"
mark fsync-of-a-returned
slow 0
cd /
disk_off

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), $FS. What reached the disk, from the fsync of a on:"
power_cut fsync-of-a-called fsync-of-b-returned
must mount -t "$FS" -o loop "$dir/after" "$dir/mnt"
case $(cat "$dir/mnt/b") in
new) echo "KEPT: after the power cut, b holds what $CALL acknowledged" ;;
old) echo "BROKEN: $CALL of b had returned, and after the power cut b holds what it held before" ;;
*) fail "after the power cut, b holds neither: $(cat "$dir/mnt/b")" ;;
esac
