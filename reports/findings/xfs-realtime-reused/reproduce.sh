#!/bin/sh
# XFS with a realtime device: blocks that a file has lost are written by another one before the loss is committed.
#
# No device has a cache here: at the power cut both devices hold everything that was sent, and are copied as they are.
# `old` is synced, and the only free blocks are those that it gives back. It is removed, and `new` is written with
# O_DIRECT. Nothing forces the log, so after the cut `old` is there again.
#
#   FILE=realtime       the files are on the realtime device, the default
#   FILE=data           control: they are on the data device, whose busy blocks wait for the log
#   SYNC=yes            control: the directory is synced after the removal
#   RTGROUPS=yes        control: with realtime groups, since 6.13 (needs a mkfs.xfs with -m metadir=1)
#
# Needs root, loop devices and xfsprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
FILE=${FILE:-realtime} SYNC=${SYNC:-no} RTGROUPS=${RTGROUPS:-no}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk dd cmp mkfs.xfs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop xfs || : # may be loaded already, or built in

dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
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

fill() { # a file of 1 MiB of one letter, synced
	tr '\0' "$2" </dev/zero | dd of="$dir/mnt/$1" bs=1M count=1 iflag=fullblock conv=fsync status=none ||
		fail "no space for $1"
}

# --- what is done --------------------------------------------------------------------------------

case $FILE in
realtime) inherit=1 ;;
data) inherit=0 ;;
*) fail "FILE=$FILE: realtime or data" ;;
esac
mkdir "$dir/mnt"
must truncate -s 320M "$dir/data"
must truncate -s 32M "$dir/realtime"
must dd if=/dev/urandom of="$dir/new" bs=1M count=1 status=none
data=$(loop data) realtime=$(loop realtime)
metadata='-m reflink=0,rmapbt=0'
[ "$RTGROUPS" = no ] || metadata='-m metadir=1,reflink=0,rmapbt=0'
# shellcheck disable=SC2086 # two words
must mkfs.xfs -q -f -K $metadata -d rtinherit=$inherit -r rtdev="$realtime" "$data"
must mount -t xfs -o rtdev="$realtime" "$data" "$dir/mnt"
fill old o
# All other blocks: what is written in place of `old` has nowhere else to go.
dd if=/dev/zero of="$dir/mnt/filler" bs=1M oflag=direct status=none 2>/dev/null
dd if=/dev/zero of="$dir/mnt/filler2" bs=4k oflag=direct status=none 2>/dev/null
sync
echo 720000 >/proc/sys/fs/xfs/xfssyncd_centisecs # the log is not to be forced because time has passed
must rm "$dir/mnt/old"
[ "$SYNC" = no ] || must sync "$dir/mnt"
sleep 3 # the blocks of a removed file are freed in the background
dd if="$dir/new" of="$dir/mnt/new" bs=64k oflag=direct status=none || echo "not all of new was written"
must cp --sparse=always "$dir/realtime" "$dir/realtime-after"
must cp --sparse=always "$dir/data" "$dir/data-after"
must umount "$dir/mnt"
must losetup -d "$data"
must losetup -d "$realtime"

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), XFS, files on the $FILE device, SYNC=$SYNC, RTGROUPS=$RTGROUPS"
data=$(loop data-after) realtime=$(loop realtime-after)
must mount -t xfs -o rtdev="$realtime" "$data" "$dir/mnt"
if [ ! -e "$dir/mnt/old" ]; then
	echo "KEPT: after the power cut, old is gone, as it was removed"
	exit 0
fi
bytes=$(tr -d o <"$dir/mnt/old" | wc -c)
size=$(wc -c <"$dir/mnt/old")
echo "old is there, with $size bytes, of which $bytes are not its own"
if [ "$bytes" = 0 ] && [ "$size" = 1048576 ]; then
	echo "KEPT: after the power cut, old is there, and holds what was synced"
elif cmp -s "$dir/new" "$dir/mnt/old"; then
	echo "BROKEN: after the power cut, old is there, and holds what was written to new"
else
	echo "BROKEN: after the power cut, old is there, and does not hold what was synced"
fi
