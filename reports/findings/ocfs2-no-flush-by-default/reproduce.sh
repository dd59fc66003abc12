#!/bin/sh
# OCFS2: as mounted by default, no cache flush is sent: what fsync(2) acknowledged is only in the disk's write cache.
#
# A file is written and synced. dm-log-writes logs a write once a later flush has made it durable, so its log up to the
# moment at which the call returned is what the platter held if the disk lost its cache in that moment.
#
#   CALL=fsync      fsync(2) of the file and of its directory, the default
#   CALL=sync       sync(2)
#   BARRIER=1       control: mounted with barrier=1
#   FS=ext4         control: the same on ext4
#
# Needs root, loop devices, dm-log-writes and ocfs2-tools. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CALL=${CALL:-fsync} FS=${FS:-ocfs2} BARRIER=${BARRIER:-}
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
modprobe -q -a loop dm-log-writes "$FS" || : # may be there already, or built in

case $FS in
ocfs2) make="-q -F -M local -N 1 -b 4096 -C 4096 -J size=4M" options=heartbeat=none${BARRIER:+,barrier=1} ;;
ext4) make="-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0" options=rw ;;
*) fail "FS=$FS: ocfs2 or ext4" ;;
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

bytes() {
	dd if=/dev/zero bs=4096 count="$2" status=none | tr '\0' "$1"
}

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/base"
disk=$(losetup -f --show "$DIR/base") # mkfs.ocfs2 opens it with O_DIRECT, which a file may not have
"mkfs.$FS" $make "$disk" >/dev/null
losetup -d "$disk"
disk_on
mount -i -t "$FS" -o "$options" "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount $FS"

mark begin
bytes K 64 >"$DIR/mnt/file"
mark before
case $CALL in
fsync) sync "$DIR/mnt/file" "$DIR/mnt" ;;
sync) sync ;;
*) fail "CALL=$CALL: fsync or sync" ;;
esac
mark returned
# The power fails here. What follows in the log is of no account.
umount "$DIR/mnt" 2>/dev/null || :
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), $FS. The log of writes, from $CALL on:"
walk show before | awk '{ print } /mark returned/ { seen = 1 } seen && ++n == 4 { exit }'
cp --sparse=always "$DIR/base" "$DIR/after"
walk replay returned
mount -i -t "$FS" -o "loop,$options" "$DIR/after" "$DIR/mnt" || fail "the crashed $FS cannot be mounted"
bytes K 64 >"$DIR/file"
if cmp -s "$DIR/file" "$DIR/mnt/file"; then
	echo "KEPT: after the power cut, the file holds what was written before $CALL"
elif [ ! -e "$DIR/mnt/file" ]; then
	echo "BROKEN: $CALL returned, and after a power cut there is no file"
else
	echo "BROKEN: $CALL returned, and after a power cut the file has $(stat -c %s "$DIR/mnt/file") bytes, not all as written"
fi
