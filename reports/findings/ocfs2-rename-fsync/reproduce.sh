#!/bin/sh
# OCFS2: fsync of a file that was renamed does not make the rename durable.
#
# A file is synced, renamed, and synced again by its new name. The disk is copied then, as it is: this is a power cut in
# which nothing was lost that the disk had been sent. The copy is mounted, which replays the journal.
#
#   DIRECTORY=1     control: fsync(2) of the directory as well
#   FS=ext4         control: the same on ext4; FS=xfs: on XFS
#
# Needs root, loop devices and ocfs2-tools. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FS=${FS:-ocfs2} DIRECTORY=${DIRECTORY:-} DIR=$(mktemp -d)

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
xfs) make="-q -f -K" options=nouuid ;;
*) fail "FS=$FS: ocfs2, ext4 or xfs" ;;
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
truncate -s 320M "$DIR/disk"
loop=$(losetup -f --show "$DIR/disk") # mkfs.ocfs2 opens it with O_DIRECT, which a file may not have
"mkfs.$FS" $make "$loop" >/dev/null
losetup -d "$loop"

on "$DIR/disk"
mkdir "$DIR/mnt/d"
echo text >"$DIR/mnt/d/old"
sync
mv "$DIR/mnt/d/old" "$DIR/mnt/d/new"
sync "$DIR/mnt/d/new"
[ -z "$DIRECTORY" ] || sync "$DIR/mnt/d"
cp --sparse=always "$DIR/disk" "$DIR/after" # the power fails here
off

echo "Linux $(uname -r), $FS: mv old new, and fsync of new"
on "$DIR/after"
names=$(ls "$DIR/mnt/d" | tr '\n' ' ')
off
if [ "$names" = "new " ]; then
	echo "KEPT: after the power cut, the file is called new"
else
	echo "BROKEN: after the power cut, there is: $names"
fi
