#!/bin/sh
# ext4 without a journal: two files get the same extended attribute, and share its block. fsync(2) of the second one
# does not write that block: after a power cut the attribute is gone.
#
# The disk is copied as it is when fsync has returned, so the disk lost nothing. The copy is checked, as it has to be
# without a journal, and read.
#
#   SECOND=same    the second file gets the attribute that the first one has, the default
#   SECOND=other   control: it gets another value, and so a block of its own
#   FIRST=none     control: the first file gets none
#   FIRST=synced   control: the first file is synced, too, in front of the second one
#   FS=journal     control: ext4 with a journal
#
# Needs root, loop devices, e2fsprogs and attr. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FIRST=${FIRST:-shared} SECOND=${SECOND:-same} FS=${FS:-nojournal}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in mkfs.ext4 e2fsck losetup mount setfattr getfattr; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

value=$(printf %0600d 1) # too long for the inode
case $SECOND in
same) second=$value ;;
other) second=$(printf %0600d 2) ;;
*) fail "SECOND=$SECOND: same or other" ;;
esac
case $FS in
nojournal) make="-O ^has_journal" ;;
journal) make="-E lazy_journal_init=0" ;;
*) fail "FS=$FS: nojournal or journal" ;;
esac

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/disk"
mkfs.ext4 -q -F $make "$DIR/disk"
mount -t ext4 -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4"
: >"$DIR/mnt/f"
: >"$DIR/mnt/g"
sync
case $FIRST in
shared) setfattr -n user.a -v "$value" "$DIR/mnt/f" ;;
synced)
	setfattr -n user.a -v "$value" "$DIR/mnt/f"
	sync "$DIR/mnt/f"
	;;
none) ;;
*) fail "FIRST=$FIRST: shared, synced or none" ;;
esac
setfattr -n user.a -v "$second" "$DIR/mnt/g"
sync "$DIR/mnt/g"
# The power fails here. fsync has returned, and nothing was written since: this is what the disk holds.
cp --sparse=always "$DIR/disk" "$DIR/after"
umount "$DIR/mnt"

echo "Linux $(uname -r), ext4, FS=$FS FIRST=$FIRST SECOND=$SECOND. What e2fsck says:"
e2fsck -fy "$DIR/after" 2>/dev/null | grep -i attribute || :
mount -t ext4 -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed ext4 cannot be mounted"
is=$(getfattr -n user.a --only-values "$DIR/mnt/g" 2>"$DIR/said") || is=none
cat "$DIR/said"
case $is in
"$second") echo "KEPT: g has the attribute that was set" ;;
none) echo "BROKEN: setxattr and fsync of g returned, and after a power cut g has no user.a" ;;
*) fail "user.a of g is $is" ;;
esac
