#!/bin/sh
# XFS with a realtime device: the log commits a file's extents and size before the file's data is on the platter.
#
# The realtime device has a volatile cache, of dm-log-writes: its log up to the moment at which the log of XFS was forced is
# what is on the platter for certain. The data device, with the log, loses nothing: it is copied as it is in that moment.
# f is written and has completed, but nobody syncs it; what forces the log is an fsync of a directory.
#
#   FILE=realtime       f is on the realtime device, the default
#   FILE=data           control: f is on the data device, which then is the one with the cache, its log included
#   CALL=directory      fsync of a directory, the default
#   CALL=file           control: fsync of f
#   CALL=sync           sync, which forces the log for all files
#
# Needs root, loop devices, dm-log-writes and xfsprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
FILE=${FILE:-realtime} CALL=${CALL:-directory}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd cmp awk mkfs.xfs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-log-writes xfs || : # may be loaded already, or built in
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

loop() { # the loop device of a file
	losetup -f --show "$dir/$1" || fail "no loop device"
}

mark() {
	must dmsetup message "$name-log" 0 mark "$1"
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

case $FILE in
realtime) cached=realtime perfect=data inherit=1 ;;
data) cached=data perfect=realtime inherit=0 ;;
*) fail "FILE=$FILE: realtime or data" ;;
esac
mkdir "$dir/mnt"
must truncate -s 320M "$dir/data"
# The realtime device was in use before: what it held is to be told from what f is given, and from zeros.
yes 'of somebody else' | head -c 64M >"$dir/realtime" || fail "no space for the realtime device"
must dd if=/dev/urandom of="$dir/new" bs=64k count=1 status=none
data=$(loop data) realtime=$(loop realtime)
must mkfs.xfs -q -f -K -m reflink=0,rmapbt=0 -d rtinherit=$inherit -r rtdev="$realtime" "$data"
# The directory is there before, and in no log.
must mount -t xfs -o rtdev="$realtime" "$data" "$dir/mnt"
must mkdir "$dir/mnt/d"
must umount "$dir/mnt"

eval "under=\$$cached other=\$$perfect"
must losetup -d "$under"
must mv "$dir/$cached" "$dir/base"
must cp --sparse=always "$dir/base" "$dir/disk"
must truncate -s 256M "$dir/log"
disk=$(loop disk) log=$(loop log)
must dmsetup create "$name-log" --table "0 $(blockdev --getsz "$disk") log-writes $disk $log"
if [ $cached = realtime ]; then
	must mount -t xfs -o rtdev="/dev/mapper/$name-log" "$other" "$dir/mnt"
else
	must mount -t xfs -o rtdev="$other" "/dev/mapper/$name-log" "$dir/mnt"
fi
mark writes
must dd if="$dir/new" of="$dir/mnt/f" bs=64k oflag=direct status=none
must touch "$dir/mnt/d/name"
mark called
case $CALL in
directory) must sync "$dir/mnt/d" ;;
file) must sync "$dir/mnt/f" ;;
sync) must sync ;;
*) fail "CALL=$CALL: directory, file or sync" ;;
esac
mark returned
must cp --sparse=always "$dir/$perfect" "$dir/$perfect-after"
must umount "$dir/mnt"
must dmsetup remove --retry "$name-log"
must losetup -d "$other"

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), XFS, f on the $FILE device, $CALL. What reached the $cached device, from the write of f on:"
power_cut writes returned
must mv "$dir/after" "$dir/$cached-after"
data=$(loop data-after) realtime=$(loop realtime-after)
must mount -t xfs -o rtdev="$realtime" "$data" "$dir/mnt"
[ -e "$dir/mnt/d/name" ] || fail "the log was not forced: d/name is gone"
[ -e "$dir/mnt/f" ] || fail "f is gone, which is another fault"
size=$(wc -c <"$dir/mnt/f")
echo "f has $size bytes"
if cmp -s "$dir/new" "$dir/mnt/f"; then
	echo "KEPT: after the power cut, f holds what was written to it"
elif [ "$size" = 0 ]; then
	echo "KEPT: after the power cut, f is empty, as before its data was there"
elif ! tr -d '\0' <"$dir/mnt/f" | grep -q .; then
	echo "KEPT: after the power cut, f reads as zeros"
elif grep -q 'of somebody else' "$dir/mnt/f"; then
	echo "BROKEN: after the power cut, f has its new size and shows what the device held before"
else
	echo "BROKEN: after the power cut, f holds neither what was written to it nor zeros"
fi
