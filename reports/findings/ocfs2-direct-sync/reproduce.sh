#!/bin/sh
# OCFS2: a write with O_DIRECT and O_SYNC returns before the journal has the file's size, and the file itself.
#
# A file is written on by dd with O_DIRECT and O_SYNC. When dd has ended, the disk is copied, as it is: this is a power
# cut in which nothing was lost that the disk had been sent. The copy is mounted, which replays the journal.
#
#   FLAGS=sync      control: O_SYNC without O_DIRECT
#   FSYNC=1         control: fsync(2) of the file behind dd
#   FS=ext4         control: the same on ext4
#
# Needs root, loop devices and ocfs2-tools. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FS=${FS:-ocfs2} FLAGS=${FLAGS:-direct,sync} FSYNC=${FSYNC:-} DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	for loop in $(losetup -n -O NAME,BACK-FILE | awk -v d="$DIR/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$loop"
	done
	rm -rf "$DIR"
}

for tool in losetup "mkfs.$FS" mount awk dd cmp; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop "$FS" || : # may be there already, or built in

case $FS in
ocfs2) make="-q -F -M local -N 1 -b 4096 -C 4096 -J size=4M" options=heartbeat=none,barrier=1 ;;
ext4) make="-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0" options=rw ;;
*) fail "FS=$FS: ocfs2 or ext4" ;;
esac

# on DISK: attach and mount it.
on() {
	loop=$(losetup -f --show "$1")
	mount -i -t "$FS" -o "$options" "$loop" "$DIR/mnt"
}

off() {
	umount "$DIR/mnt"
	losetup -d "$loop"
}

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/disk"
loop=$(losetup -f --show "$DIR/disk") # mkfs.ocfs2 opens it with O_DIRECT, which a file may not have
"mkfs.$FS" $make "$loop" >/dev/null
losetup -d "$loop"

on "$DIR/disk"
mkdir "$DIR/mnt/d"
sync
dd if=/dev/zero bs=4096 count=4 status=none | tr '\0' K >"$DIR/data"
dd if="$DIR/data" of="$DIR/mnt/d/file" bs=4096 iflag=fullblock oflag="$FLAGS" status=none
[ -z "$FSYNC" ] || sync "$DIR/mnt/d/file"
cp --sparse=always "$DIR/disk" "$DIR/after" # the power fails here
off

echo "Linux $(uname -r), $FS: 16 KiB by dd oflag=$FLAGS"
on "$DIR/after"
if cmp -s "$DIR/data" "$DIR/mnt/d/file"; then
	echo "KEPT: after the power cut, the file holds what was written"
elif [ ! -e "$DIR/mnt/d/file" ]; then
	echo "BROKEN: the writes returned, and after a power cut there is no file"
else
	echo "BROKEN: the writes returned, and after a power cut the file has $(stat -c %s "$DIR/mnt/d/file") bytes"
fi
off
