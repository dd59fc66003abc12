#!/bin/sh
# UDF: a file that grows out of its inode is written over with the inode of a file that was removed. No power cut.
#
# A small file lies in the block of its inode. Its neighbour is removed, and then it grows: its data goes into the block
# that the neighbour's inode had. The old inode is still dirty in the cache of the device, and is written there after
# the data. The file is compared after a sync, an unmount and a mount.
#
#   CASE=removed    the default
#   CASE=kept       control: the neighbour is not removed
#   CASE=synced     control: a sync behind the removal writes the old inode while its block is still free
#   BLOCK=4096      a file system with blocks of 4096 bytes, in place of 512
#   FS=ext4         control: the same on ext4 with inline_data
#
# Needs root, loop devices and udftools (FS=ext4: e2fsprogs). Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CASE=${CASE:-removed} BLOCK=${BLOCK:-512} FS=${FS:-udf}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	rm -rf "$DIR"
}

case $FS in
udf) make="mkudffs --media-type=hd --blocksize=$BLOCK" ;;
ext4) make="mkfs.ext4 -q -F -O inline_data -I 512" ;;
*) fail "FS=$FS: udf or ext4" ;;
esac
for tool in "${make%% *}" losetup mount cmp od; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop "$FS" || : # may be there already, or built in

bytes() {
	head -c "$2" /dev/zero | tr '\0' "$1"
}

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/disk"
$make "$DIR/disk" >/dev/null || fail "$make failed"
mount -t "$FS" -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount $FS"
bytes F 100 >"$DIR/mnt/grows"
bytes G 100 >"$DIR/mnt/goes"
sync
case $CASE in
removed) rm "$DIR/mnt/goes" ;;
synced) rm "$DIR/mnt/goes" && sync ;;
kept) ;;
*) fail "CASE=$CASE: removed, synced or kept" ;;
esac
bytes F 8000 >>"$DIR/mnt/grows"
sync
umount "$DIR/mnt"

mount -t "$FS" -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount $FS again"
bytes F 8100 >"$DIR/all"
[ "$(stat -c %s "$DIR/mnt/grows")" = 8100 ] || fail "the file has another size"
echo "Linux $(uname -r), $FS, $CASE. The file begins with:"
od -An -tx1z -N 64 "$DIR/mnt/grows"
if cmp -s "$DIR/all" "$DIR/mnt/grows"; then
	echo "KEPT: the file holds what was written"
else
	wrong=$(cmp -l "$DIR/all" "$DIR/mnt/grows" | wc -l)
	echo "BROKEN: after sync and a clean unmount, $wrong bytes of the file are not what was written"
fi
