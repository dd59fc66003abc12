#!/bin/sh
# FAT, with the change "fat: stop reading directory entries past the end-of-directory marker": after a power cut, a file
# that was synced cannot be seen if an earlier entry of its directory was not written, and the next long name makes the
# file system read-only. fsck.fat finds nothing wrong, and counts the file.
#
# Fifteen files are made in the root directory, and synced with it; then an empty one, which is not synced and fills
# the first block of the directory, and one with data, in the second block, which is. dm-log-writes logs a write once a
# later flush has made it durable, so its log up to the moment at which that fsync returned is what the platter held if
# the disk lost its cache in that moment. `fsck.fat -a` is run on it, as at boot, and it is mounted.
#
#   FIRST=0        the file in the first block is not synced, the default
#   FIRST=1        control: it is
#
# Needs root, loop devices, dm-log-writes and fsck.fat. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FS=vfat FIRST=${FIRST:-0}
NAME=cut-$$ DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	dmsetup remove "$NAME" 2>/dev/null || :
	for loop in $(losetup -n -O NAME,BACK-FILE | awk -v d="$DIR/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$loop"
	done
	rm -rf "$DIR"
}

for tool in dmsetup losetup mkfs.vfat fsck.fat mount awk od dd cmp; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes "$FS" nls_cp437 nls_ascii nls_utf8 || : # may be there already, or built in

make="-F 32 -s 1"

# --- a disk with a write cache, of dm-log-writes --------------------------------------------------

# The file system is on $DIR/disk; what is written to it is logged in $DIR/log.
disk_on() {
	cp --sparse=always "$DIR/base" "$DIR/disk"
	truncate -s 64M "$DIR/log"
	disk=$(losetup -f --show "$DIR/disk") log=$(losetup -f --show "$DIR/log")
	echo "0 $(blockdev --getsz "$disk") log-writes $disk $log" | dmsetup create "$NAME" ||
		fail "no dm-log-writes in this kernel"
	dmsetup mknodes "$NAME" # where there is no udev
}

mark() {
	dmsetup message "$NAME" 0 mark "$1"
}

disk_off() {
	dmsetup remove --retry "$NAME"
	losetup -d "$disk"
	losetup -d "$log"
}

# show MARK: print the log from the mark on; replay MARK FILE: apply to FILE all that is in front of it.
# Sectors are of 512 bytes. Sector 0: magic, version, number of entries. An entry is a sector with the place, the
# length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK) and the length of a mark's text, which follows; then the data.
walk() {
	at=1 shown=
	for n in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$DIR/log") - 1))); do
		set -- "$1" "$2" $(od -An -v -tu8 -j$((at * 512)) -N32 "$DIR/log")
		text=
		if [ $(($5 & 8)) != 0 ]; then
			text=$(dd if="$DIR/log" bs=1 skip=$((at * 512 + 32)) count="$6" 2>/dev/null | tr -d '\0')
		fi
		if [ "$text" = "$2" ]; then
			[ "$1" != show ] && return
			shown=1
		fi
		if [ "$1" = show ]; then
			kind=WRITE
			[ "$4" = 0 ] && kind=
			[ $(($5 & 1)) != 0 ] && kind="$kind FLUSH"
			[ $(($5 & 2)) != 0 ] && kind="$kind FUA"
			[ -n "$text" ] && kind="mark $text"
			[ -n "$shown" ] && echo "  $n: sector $3 + $4 $kind"
		elif [ $(($5 & 12)) = 0 ] && [ "$4" != 0 ]; then
			dd if="$DIR/log" of="$DIR/after" bs=512 skip=$((at + 1)) seek="$3" count="$4" conv=notrunc status=none
		fi
		at=$((at + 1))
		[ $(($5 & 4)) != 0 ] || at=$((at + $4))
	done
	[ "$1" = show ] || fail "the log has no mark $2"
}

# --- the workload ----------------------------------------------------------------------------

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/base"
mkfs.vfat $make "$DIR/base" >/dev/null
disk_on
mount -t vfat "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount vfat"

# Short names in capitals take one entry of 32 bytes each; 16 fill a block.
for n in 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15; do
	: >"$DIR/mnt/FILE$n"
done
sync "$DIR"/mnt/FILE* "$DIR/mnt"
mark before
: >"$DIR/mnt/FILE16"
echo text >"$DIR/mnt/SYNCED"
[ "$FIRST" = 0 ] || sync "$DIR/mnt"
sync "$DIR/mnt/SYNCED"
mark returned
# The power fails here. What follows in the log is of no account.
umount "$DIR/mnt"
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), vfat. The log of writes, from the sixteenth file on:"
walk show before | awk '{ print } /mark returned/ { seen = 1 } seen && ++n == 4 { exit }'
cp --sparse=always "$DIR/base" "$DIR/after"
walk replay returned
fsck.fat -a "$DIR/after" || [ $? = 1 ] || fail "fsck.fat -a ended with an error"
mount -t vfat -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed vfat cannot be mounted"
echo "Names: $(ls "$DIR/mnt" | tr '\n' ' ')"
told=
[ -e "$DIR/mnt/SYNCED" ] || told="SYNCED, whose fsync had returned, is not there"
if ! (: >"$DIR/mnt/a long name for a file") 2>"$DIR/said"; then
	told="${told:+$told; }a new file: $(sed 's/.*: //' "$DIR/said")"
	(: >"$DIR/mnt/FILE17") 2>"$DIR/said" || told="$told; then: $(sed 's/.*: //' "$DIR/said")"
fi
if [ -z "$told" ]; then
	echo "KEPT: after the power cut, SYNCED is there, and files can be made"
else
	echo "BROKEN: after the power cut and fsck.fat -a, $told"
fi
