#!/bin/sh
# exFAT: sync(2), syncfs(2) and a freeze return while what they wrote is only in the disk's write cache.
#
# A kernel and a boot entry are written to a file system, as an update of a boot partition does, and then the call is
# made. dm-log-writes logs a write once a later flush has made it durable, so its log up to the moment at which the call
# returned is what the platter held if the disk lost its cache in that moment.
#
#   CALL=sync       sync(2), the default
#   CALL=syncfs     syncfs(2)
#   CALL=freeze     fsfreeze -f and fsfreeze -u
#   CALL=umount     control: umount(2), which clears a flag behind a flush
#   CALL=fsync      control: fsync(2) of each file and of the directories, which do flush
#   FS=ext4         control: the same on ext4
#
# Needs root, loop devices and dm-log-writes. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CALL=${CALL:-sync} FS=${FS:-exfat}
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

for tool in dmsetup losetup "mkfs.$FS" mount awk od dd cmp fsfreeze; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes "$FS" nls_cp437 nls_ascii nls_utf8 || : # may be there already, or built in

case $FS in
exfat) make="-c 4096" ;;
ext4) make="-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0" ;;
*) fail "FS=$FS: exfat or ext4" ;;
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
"mkfs.$FS" $make "$DIR/base" >/dev/null
disk_on
mount -t "$FS" "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount $FS"

mark begin
mkdir "$DIR/mnt/loader"
bytes K 64 >"$DIR/mnt/linux"
bytes E 1 >"$DIR/mnt/loader/entry"
mark before
case $CALL in
sync) sync ;;
syncfs) sync -f "$DIR/mnt/linux" ;;
freeze) fsfreeze -f "$DIR/mnt" && fsfreeze -u "$DIR/mnt" ;;
umount) umount "$DIR/mnt" ;;
fsync) sync "$DIR/mnt/linux" "$DIR/mnt/loader/entry" "$DIR/mnt/loader" "$DIR/mnt" ;;
*) fail "CALL=$CALL: sync, syncfs, freeze, umount or fsync" ;;
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
mount -t "$FS" -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed $FS cannot be mounted"
bytes K 64 >"$DIR/linux"
bytes E 1 >"$DIR/entry"
if cmp -s "$DIR/linux" "$DIR/mnt/linux" && cmp -s "$DIR/entry" "$DIR/mnt/loader/entry"; then
	echo "KEPT: after the power cut, both files hold what was written before $CALL"
elif [ ! -e "$DIR/mnt/linux" ]; then
	echo "BROKEN: $CALL returned, and after a power cut there is no file: $(ls "$DIR/mnt" | wc -l) names"
else
	echo "BROKEN: $CALL returned, and after a power cut linux has $(stat -c %s "$DIR/mnt/linux") bytes, not all as written"
fi
