#!/bin/sh
# XFS: setxattr and fsync return, and after a power cut the value of an extended attribute that was replaced is in
# neither place: not the old one, not the new one.
#
# The new value no longer fits into the inode, so several transactions replace it. With the mount option wsync, only an
# earlier one of them is forced to disk; the fsync that follows forces nothing. The disk is then copied as it is, which is
# what a power cut leaves of a disk that loses nothing at all, and the copy is mounted.
#
#   OPTIONS=wsync      the default; OPTIONS= is a control: all of them are in one checkpoint of the log
#   CALL=fsync         the default; CALL=syncfs is a control: it forces the whole log
#
# Needs root, loop devices, xfsprogs, setfattr and getfattr. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CALL=${CALL:-fsync} OPTIONS=${OPTIONS-wsync}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	umount "$DIR/after" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in mkfs.xfs xfs_io xfs_repair losetup mount setfattr getfattr; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
case $CALL in fsync | syncfs) ;; *) fail "CALL=$CALL: fsync or syncfs" ;; esac
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop xfs || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 320M "$DIR/disk"
mkfs.xfs -q -K -i size=512 "$DIR/disk"
mount -o "loop${OPTIONS:+,$OPTIONS}" "$DIR/disk" "$DIR/mnt" || fail "cannot mount XFS"
old=old new=$(printf %0400d 1)
: >"$DIR/mnt/f"
setfattr -n user.a -v "$old" "$DIR/mnt/f"
sync

setfattr -n user.a -v "$new" "$DIR/mnt/f"
case $CALL in
fsync) xfs_io -c fsync "$DIR/mnt/f" ;;
syncfs) sync -f "$DIR/mnt/f" ;;
esac
cp --sparse=always "$DIR/disk" "$DIR/crashed"

mount -o loop,nouuid "$DIR/crashed" "$DIR/after" || fail "the crashed file system cannot be mounted"
is=$(getfattr -n user.a --only-values "$DIR/after/f" 2>"$DIR/said") || is=none
umount "$DIR/after"
echo "Linux $(uname -r), XFS ${OPTIONS:-without options}; after setxattr, $CALL and a power cut:"
cat "$DIR/said"
xfs_repair -n "$DIR/crashed" 2>&1 | grep -i attr || :
case $is in
"$new") echo "KEPT: user.a of f has its new value" ;;
"$old") echo "BROKEN: user.a of f has its old value, although setxattr and $CALL returned" ;;
none) echo "BROKEN: user.a of f has neither its old nor its new value, although setxattr and $CALL returned" ;;
*) fail "user.a of f is $is" ;;
esac
