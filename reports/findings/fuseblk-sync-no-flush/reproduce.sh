#!/bin/sh
# FUSE on a block device: sync(2) and syncfs(2) return while what they wrote is only in the disk's write cache.
#
# Two files are written through ntfs-3g, one in a new directory, and then the call is made. dm-log-writes logs a write
# once a later flush has made it durable. So its log up to the moment at which the call returned is what the platter
# held, if the disk lost its cache in that moment.
#
#   CALL=sync       sync(2), the default
#   CALL=syncfs     syncfs(2)
#   CALL=umount     umount(2)
#   CALL=fsync      control: fsync(2) of each file and of the directories, of which the daemon is told
#   FS=ntfs-3g      the daemon; or ext4 (control), a file system of the kernel; or exfat-fuse, another daemon
#   LOSES=cache     what the power cut takes; or nothing (control): all that was written by then is left
#
# Needs root, loop devices, FUSE and dm-log-writes. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CALL=${CALL:-sync} FS=${FS:-ntfs-3g} LOSES=${LOSES:-cache}
NAME=cut-$$ DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

# DEVICE: mounts the file system on it, by its daemon or by the kernel.
start() {
	case $FS in
	ntfs-3g) ntfs-3g "$1" "$DIR/mnt" ;;
	exfat-fuse) mount.exfat-fuse "$1" "$DIR/mnt" >/dev/null ;;
	ext4) mount -t ext4 "$1" "$DIR/mnt" ;;
	esac || fail "cannot mount $FS"
}

stop() {
	umount "$DIR/mnt" 2>/dev/null || :
	while pidof "$program" >/dev/null; do sleep 0.1; done
}

clean() {
	stop
	dmsetup remove --retry "$NAME" 2>/dev/null || :
	for loop in $(losetup -n -O NAME,BACK-FILE | awk -v d="$DIR/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$loop"
	done
	rm -rf "$DIR"
}

case $FS in
ntfs-3g) program=ntfs-3g mkfs="mkntfs -F -Q -q -T -s 512 -p 0 -H 255 -S 63" ;;
exfat-fuse) program=mount.exfat-fuse mkfs="mkfs.exfat" ;;
ext4) program=mkfs.ext4 mkfs="mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0" ;;
*) fail "FS=$FS: ntfs-3g, exfat-fuse or ext4" ;;
esac
case $LOSES in cache | nothing) ;; *) fail "LOSES=$LOSES: cache or nothing" ;; esac
for tool in "$program" "${mkfs%% *}" dmsetup losetup mount pidof awk od dd cmp; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes fuse ext4 || : # may be there already, or built in

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

# show MARK: print the log from the mark on; replay MARK: apply to $DIR/after all that is in front of it.
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
$mkfs "$DIR/base" >/dev/null 2>&1 || fail "$mkfs failed"
disk_on
start "$(realpath "/dev/mapper/$NAME")"
kind=$(awk -v d="$DIR/mnt" '$2 == d { print $3 }' /proc/mounts)

mark begin
mkdir "$DIR/mnt/loader"
bytes K 8 >"$DIR/mnt/linux"
bytes E 1 >"$DIR/mnt/loader/entry"
mark before
case $CALL in
sync) sync ;;
syncfs) sync -f "$DIR/mnt/linux" ;;
umount) umount "$DIR/mnt" ;;
fsync) sync "$DIR/mnt/linux" "$DIR/mnt/loader/entry" "$DIR/mnt/loader" "$DIR/mnt" ;;
*) fail "CALL=$CALL: sync, syncfs, umount or fsync" ;;
esac
mark returned
# The power fails here. What follows in the log is of no account.
cp --sparse=always "$DIR/disk" "$DIR/written"
stop
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), $FS, mounted as $kind. The log of writes, from $CALL on:"
walk show before | awk '{ print } /mark returned/ { seen = 1 } seen && ++n == 4 { exit }'
if [ "$LOSES" = cache ]; then
	cp --sparse=always "$DIR/base" "$DIR/after"
	walk replay returned
else
	mv "$DIR/written" "$DIR/after"
fi
start "$(losetup -f --show "$DIR/after")"
bytes K 8 >"$DIR/linux"
bytes E 1 >"$DIR/entry"
if cmp -s "$DIR/linux" "$DIR/mnt/linux" && cmp -s "$DIR/entry" "$DIR/mnt/loader/entry"; then
	echo "KEPT: after the power cut, both files hold what was written before $CALL"
elif [ ! -e "$DIR/mnt/linux" ]; then
	echo "BROKEN: $CALL returned, and after a power cut there is no file: $(ls "$DIR/mnt" | wc -l) names"
else
	echo "BROKEN: $CALL returned, and after a power cut linux has $(stat -c %s "$DIR/mnt/linux") bytes, not all as written"
fi
