#!/bin/sh
# xfs_repair removes all extended attributes of a file that a power cut caught in the middle of a setxattr, although the
# kernel has left it as it means to, and reads every attribute.
#
# With wsync, setxattr forces the first of its transactions to the disk; the others are in memory when it returns. The
# disk is then copied as it is, which is what a power cut leaves of a disk that loses nothing at all. A mount of the copy
# recovers it, and reads the attributes; xfs_repair is then run on it, and they are read once more.
#
#   AFTER=node         the default: the attributes no longer fit into one block; the new root of the tree has one entry
#   AFTER=incomplete   the value of an attribute is replaced, in a tree of several blocks: the new one is not complete yet
#   AFTER=synced       control: as node, and everything is synced before the power cut
#
# Needs root, loop devices, xfsprogs, setfattr and getfattr. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
AFTER=${AFTER:-node}
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

attributes() {
	mount -o loop,nouuid "$DIR/crashed" "$DIR/after" || fail "the copy cannot be mounted"
	getfattr -d "$DIR/after/f" 2>&1 | grep -v '^#' | sort >"$1" || :
	umount "$DIR/after"
}

for tool in mkfs.xfs xfs_repair losetup mount setfattr getfattr; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop xfs || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 320M "$DIR/disk"
mkfs.xfs -q -K -i size=512 "$DIR/disk"
mount -o loop,wsync "$DIR/disk" "$DIR/mnt" || fail "cannot mount XFS"
: >"$DIR/mnt/f"
case $AFTER in node | synced) count=41 ;; incomplete) count=90 ;; *) fail "AFTER=$AFTER" ;; esac
n=0
while [ $n -lt $count ]; do
	# The one that is too much for a block is the last: all before it are on the disk.
	[ $n -lt 40 ] || [ $count != 41 ] || sync
	value="a-value-that-is-not-short-at-all-$n-a-value-that-is-not-short"
	setfattr -n "user.an-attribute-with-a-name-$n" -v "$value" "$DIR/mnt/f"
	n=$((n + 1))
done
case $AFTER in
incomplete)
	sync
	setfattr -n user.an-attribute-with-a-name-50 -v another "$DIR/mnt/f"
	;;
synced) sync ;;
esac
cp --sparse=always "$DIR/disk" "$DIR/crashed"

echo "Linux $(uname -r), $(xfs_repair -V), AFTER=$AFTER. After the power cut:"
attributes "$DIR/before"
echo "the kernel reads $(wc -l <"$DIR/before") attributes of f; xfs_repair -n says:"
found=0
xfs_repair -n "$DIR/crashed" >"$DIR/said" 2>&1 || found=$?
grep -i -e attr -e hash -e nblocks -e nextents "$DIR/said" || echo "nothing of attributes"
echo "xfs_repair -n exits with $found"
xfs_repair "$DIR/crashed" >"$DIR/said" 2>&1 || fail "xfs_repair exits with $?"
grep -i -e attr "$DIR/said" || :
attributes "$DIR/left"
echo "after xfs_repair, the kernel reads $(wc -l <"$DIR/left") attributes of f"
[ -s "$DIR/before" ] || fail "there were none before xfs_repair either"
if cmp -s "$DIR/before" "$DIR/left"; then
	[ $found = 0 ] || fail "xfs_repair -n exits with $found, and xfs_repair removes nothing"
	echo "KEPT: xfs_repair finds nothing wrong, and all attributes are there"
else
	echo "BROKEN: xfs_repair has removed attributes of a file that recovery had left whole"
fi
