#!/bin/sh
# OCFS2: a mount reads the root directory's inode before it replays the journal, and goes on with the old one.
#
# Files are made in the root directory until it grows by a block, and are synced. The disk is copied then, as it is: this
# is a power cut in which nothing was lost that the disk had been sent. The copy is mounted, which replays the journal.
#
#   WRITE=1         chmod of the directory in the first mount after the power cut; judged by the second one
#   PLACE=d         control: the same files in a directory d
#   AGAIN=1         control: the first mount is ended before anybody looks, and a second one is judged
#   FS=ext4         control: the same on ext4
#
# Needs root, loop devices and ocfs2-tools. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FS=${FS:-ocfs2} PLACE=${PLACE:-.} WRITE=${WRITE:-} AGAIN=${AGAIN:-} DIR=$(mktemp -d) FILES=45

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

for tool in losetup "mkfs.$FS" mount awk; do
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

count() {
	ls "$DIR/mnt/$PLACE" | grep -c "^name-" || :
}

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/disk"
loop=$(losetup -f --show "$DIR/disk") # mkfs.ocfs2 opens it with O_DIRECT, which a file may not have
"mkfs.$FS" $make "$loop" >/dev/null
losetup -d "$loop"
on "$DIR/disk"
mkdir -p "$DIR/mnt/$PLACE"
off

on "$DIR/disk"
for n in $(seq $FILES); do
	: >"$DIR/mnt/$PLACE/$(printf 'name-%0100d' "$n")"
done
sync "$DIR/mnt/$PLACE"
cp --sparse=always "$DIR/disk" "$DIR/after" # the power fails here
off

echo "Linux $(uname -r), $FS: $FILES files in $PLACE, which is synced"
on "$DIR/after"
first=$(count)
echo "the first mount after the power cut shows $first of them"
if [ -n "$WRITE" ]; then
	chmod 700 "$DIR/mnt/$PLACE"
fi
off
if on "$DIR/after"; then
	second=$(count)
	echo "the second one shows $second of them"
	off
else
	second=none
	losetup -d "$loop"
	echo "there is no second mount"
fi
if [ "$FS" = ocfs2 ]; then
	loop=$(losetup -f --show "$DIR/after")
	fsck.ocfs2 -fn "$loop" 2>&1 | grep -v "^Pass\|^Checking\|^  \|^fsck\|^$" | head -12 | cut -c1-160
	losetup -d "$loop"
fi
seen=$first
[ -z "$WRITE$AGAIN" ] || seen=$second
if [ "$seen" = "$FILES" ]; then
	echo "KEPT: all $FILES files are there"
else
	echo "BROKEN: $seen of $FILES synced files are there"
fi
