#!/bin/sh
# FAT: fsync(2) of a directory does not write the first block of one that was made since the mount: a new name in it is
# gone after a power cut, although the file and the directory were synced.
#
# A directory is made, and sync(1) writes everything. Then a file is made in it, and the file and the directory are
# synced. dm-log-writes logs a write once a later flush has made it durable, so its log up to the moment at which the
# last fsync returned is what the platter held if the disk lost its cache in that moment.
#
#   CHANGE=create  an empty file is made, the default
#   CHANGE=rename  a synced file is renamed
#   PARENT=1       control: fsync of the parent directory first
#   AGAIN=1        control: another mount between mkdir and the new file
#   FS=exfat       control: the same on exFAT; FS=ext4: on ext4
#
# Needs root, loop devices and dm-log-writes. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CHANGE=${CHANGE:-create} FS=${FS:-vfat} PARENT=${PARENT:-0} AGAIN=${AGAIN:-0}
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

for tool in dmsetup losetup "mkfs.$FS" mount awk od dd cmp; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes "$FS" nls_cp437 nls_ascii nls_utf8 || : # may be there already, or built in

case $FS in
vfat) make="-F 32 -s 1" ;;
exfat) make="-c 4096" ;;
ext4) make="-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0" ;;
*) fail "FS=$FS: vfat, exfat or ext4" ;;
esac

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
"mkfs.$FS" $make "$DIR/base" >/dev/null
disk_on
mount -t "$FS" "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount $FS"

mkdir "$DIR/mnt/d"
case $CHANGE in
create) ;;
rename)
	echo text >"$DIR/mnt/d/old"
	sync "$DIR/mnt/d/old"
	;;
*) fail "CHANGE=$CHANGE: create or rename" ;;
esac
sync
[ "$PARENT" = 0 ] || sync "$DIR/mnt"
if [ "$AGAIN" = 1 ]; then
	umount "$DIR/mnt"
	mount -t "$FS" "/dev/mapper/$NAME" "$DIR/mnt"
fi
mark before
case $CHANGE in
create)
	: >"$DIR/mnt/d/new"
	sync "$DIR/mnt/d/new" "$DIR/mnt/d"
	;;
rename)
	mv "$DIR/mnt/d/old" "$DIR/mnt/d/new"
	sync "$DIR/mnt/d"
	;;
esac
mark returned
# The power fails here. What follows in the log is of no account.
umount "$DIR/mnt"
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), $FS. The log of writes, from the $CHANGE on:"
walk show before | awk '{ print } /mark returned/ { seen = 1 } seen && ++n == 4 { exit }'
cp --sparse=always "$DIR/base" "$DIR/after"
walk replay returned
mount -t "$FS" -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed $FS cannot be mounted"
[ -d "$DIR/mnt/d" ] || fail "there is no d"
echo "Names in d: $(ls "$DIR/mnt/d" | tr '\n' ' ')"
if [ -e "$DIR/mnt/d/new" ]; then
	echo "KEPT: after the power cut, d/new is there"
else
	echo "BROKEN: fsync of d returned, and after a power cut d/new is not there"
fi
