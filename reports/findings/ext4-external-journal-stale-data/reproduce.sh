#!/bin/sh
# ext4 with its journal on another disk: a commit by the clock leads to new blocks whose data is only in the cache of the
# file system's own disk, so that a file shows what the disk held there before.
#
# The file system's disk has a volatile cache, of dm-log-writes: its log up to a moment is what is on the platter for
# certain. The journal's disk loses nothing: it is copied as it is in that moment.
#
#   JOURNAL=external    the default
#   JOURNAL=internal    control: the journal is on the file system's disk
#   OPTIONS=...         more mount options, such as dioread_lock: control, the data is ordered with the commit
#
# Needs root, loop devices, dm-log-writes and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
JOURNAL=${JOURNAL:-external} OPTIONS=${OPTIONS:-}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd cmp awk mke2fs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-log-writes ext4 || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$ vm=/proc/sys/vm writeback= expire=
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	dmsetup remove --retry "$name-log" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
	[ -z "$writeback" ] || echo "$writeback" >$vm/dirty_writeback_centisecs
	[ -z "$expire" ] || echo "$expire" >$vm/dirty_expire_centisecs
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

loop() { # the loop device of a file
	losetup -f --show "$dir/$1" || fail "no loop device"
}

mark() {
	must dmsetup message "$name-log" 0 mark "$1"
}

# mount_it DEVICE JOURNAL
mount_it() {
	must mount -t ext4 -o "commit=1${OPTIONS:+,$OPTIONS}${2:+,journal_path=$2}" "$1" "$dir/mnt"
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
# What was on the disk before mkfs: 16 MiB of S.
head -c 16M /dev/zero | tr '\0' S >"$dir/base" || fail "no room"
must truncate -s 8M "$dir/journal"
must dd if=/dev/urandom of="$dir/old" bs=4096 count=1 status=none
must dd if=/dev/urandom of="$dir/new" bs=4096 count=1 status=none
make="-q -F -t ext4 -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0"
base=$(loop base) journal=
if [ "$JOURNAL" = external ]; then
	journal=$(loop journal)
	must mke2fs -q -F -b 4096 -O journal_dev "$journal"
	must mke2fs $make -J device="$journal" "$base"
else
	must mke2fs $make "$base"
fi
# f is there before: nothing of it is in the log.
mount_it "$base" "$journal"
must cp "$dir/old" "$dir/mnt/f"
must umount "$dir/mnt"
must losetup -d "$base"

must cp --sparse=always "$dir/base" "$dir/disk"
must truncate -s 256M "$dir/log"
disk=$(loop disk) log=$(loop log)
must dmsetup create "$name-log" --table "0 $(blockdev --getsz "$disk") log-writes $disk $log"
mount_it "/dev/mapper/$name-log" "$journal"
# Nobody syncs: dirty pages are written back after 0.1 s, and the journal commits every second.
writeback=$(cat $vm/dirty_writeback_centisecs) expire=$(cat $vm/dirty_expire_centisecs)
echo 10 >$vm/dirty_expire_centisecs
echo 10 >$vm/dirty_writeback_centisecs
mark appended
must dd if="$dir/new" of="$dir/mnt/f" bs=4096 seek=1 conv=notrunc status=none
cat "$dir/old" "$dir/new" >"$dir/wanted"
sleep 8
mark waited
must cp --sparse=always "$dir/journal" "$dir/journal-after"
must umount "$dir/mnt"
must dmsetup remove --retry "$name-log"

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), ext4, journal $JOURNAL${OPTIONS:+, $OPTIONS}. What reached the file system's disk:"
power_cut appended waited
[ -z "$journal" ] || journal=$(loop journal-after)
after=$(loop after)
mount_it "$after" "$journal"
[ -e "$dir/mnt/f" ] || fail "f is gone, which is another fault"
if cmp -s "$dir/wanted" "$dir/mnt/f"; then
	echo "KEPT: after the power cut, f holds what was appended"
elif cmp -s "$dir/old" "$dir/mnt/f"; then
	echo "KEPT: after the power cut, f is what it was before"
elif tail -c +4097 "$dir/mnt/f" | tr -d S | cmp -s - /dev/null; then
	echo "BROKEN: f is 4 KiB longer after the power cut, and these 4 KiB are what the disk held before mkfs"
else
	echo "BROKEN: after the power cut f holds neither old nor new data"
fi
