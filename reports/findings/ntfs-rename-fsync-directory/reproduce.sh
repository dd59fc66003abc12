#!/bin/sh
# ntfs, the driver of Linux 7.1 and later: fsync(2) of a directory writes the name that a file has got in it, and not
# the file's own record, which does not have that name. So the two contradict each other after a power cut, and ntfsck
# takes the name away.
#
# In a directory with one name, which has its index in its own record, a file is written and synced, with the directory;
# then it is renamed, or gets a second name, and the directory is synced. dm-log-writes logs a write once a later flush
# has made it durable, so its log up to the moment at which that fsync returned is what the platter held if the disk
# lost its cache in that moment.
#
#   NAMING=link    a second name, by link(2), and no rename
#   CALL=both      control: fsync of the file by its new name, and then of the directory
#   FS=ntfs3       the other driver
#
# Needs root, loop devices, dm-log-writes, mkntfs, ntfsinfo. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CALL=${CALL:-directory} FS=${FS:-ntfs} NAMING=${NAMING:-rename}
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

case $FS in
ntfs3) mkfs="mkntfs -F -Q -q -T -s 512 -p 0 -H 255 -S 63" options=force ;; # a dirty volume is not mounted without it
ntfs) mkfs="mkntfs -F -Q -q -T -s 512 -p 0 -H 255 -S 63" options=rw ;;
*) fail "FS=$FS: ntfs3 or ntfs" ;;
esac
for tool in dmsetup losetup "${mkfs%% *}" mount awk od dd cmp ntfsinfo; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes "$FS" || : # may be there already, or built in

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
$mkfs "$DIR/base" >/dev/null 2>&1 || fail "$mkfs failed"
disk_on
# -i: by the driver, and not by mount.ntfs, which comes with ntfs-3g.
mount -i -t "$FS" "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount $FS"

mkdir "$DIR/mnt/d"
bytes N 10 >"$DIR/mnt/d/new"
sync "$DIR/mnt/d/new" "$DIR/mnt/d"
mark before
case $NAMING in
rename) mv "$DIR/mnt/d/new" "$DIR/mnt/d/boot" ;;
link) ln "$DIR/mnt/d/new" "$DIR/mnt/d/boot" ;;
*) fail "NAMING=$NAMING: rename or link" ;;
esac
case $CALL in
directory) sync "$DIR/mnt/d" ;;
both) sync "$DIR/mnt/d/boot" "$DIR/mnt/d" ;;
*) fail "CALL=$CALL: directory or both" ;;
esac
mark returned
# The power fails here. What follows in the log is of no account.
umount "$DIR/mnt"
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), $FS. The log of writes, from the new name on:"
walk show before | awk '{ print } /mark returned/ { seen = 1 } seen && ++n == 4 { exit }'
cp --sparse=always "$DIR/base" "$DIR/after"
walk replay returned
mount -i -t "$FS" -o "loop,$options" "$DIR/after" "$DIR/mnt" || fail "the crashed $FS cannot be mounted"
echo "Names: $(ls -s "$DIR/mnt/d" | tail -n +2 | tr '\n' ';')"
[ -e "$DIR/mnt/d/boot" ] || fail "the directory's index does not have boot either"
record=$(stat -c %i "$DIR/mnt/d/boot")
umount "$DIR/mnt"
named=$(ntfsinfo -f -i "$record" "$DIR/after" 2>/dev/null | sed -n "s/.*Filename:[^']*'\(.*\)'.*/\1/p" | tr '\n' ' ')
echo "Record $record, to which the directory's name boot leads, has the names: $named"
if command -v ntfsck >/dev/null; then
	ntfsck -a -q "$DIR/after" || : # 1: it has corrected something
	mount -i -t "$FS" -o "loop,$options" "$DIR/after" "$DIR/mnt" || fail "$FS cannot be mounted after ntfsck"
	echo "Names after ntfsck -a: $(ls -s "$DIR/mnt/d" | tail -n +2 | tr '\n' ';')"
fi
case " $named" in
*" boot "*) echo "KEPT: after the power cut, directory and file have the name boot" ;;
*" new "*) echo "BROKEN: fsync of the directory returned, and after a power cut the file's record has new alone" ;;
*) fail "ntfsinfo tells no name of record $record" ;;
esac
