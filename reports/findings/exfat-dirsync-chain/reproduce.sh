#!/bin/sh
# exFAT: with the mount option dirsync, names are lost in a power cut although they were made before it: where a directory
# grows into a cluster that is not next to its last one, the file allocation table, which leads there, is not written.
#
# The names of d fill its cluster, and those that follow go into the next free one; between the two there is a file. The
# loop device's file is copied once the last name is made, which is what a power cut leaves of a disk that has no cache and
# loses nothing. The copy is repaired as at boot, by fsck.exfat -y, mounted, and the names are counted.
#
#   OPTION=dirsync  the default
#   OPTION=sync     control: sync, which includes it
#   BETWEEN=0       control: no file in between, so that the clusters are neighbours and need no chain
#   FS=vfat         control: dirsync on FAT, repaired by fsck.fat -a
#
# Needs root, loop devices and exfatprogs (FS=vfat: dosfstools). Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FS=${FS:-exfat} OPTION=${OPTION:-dirsync} BETWEEN=${BETWEEN:-1}
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

case $FS in
exfat) make="mkfs.exfat -c 4096" repair="fsck.exfat -y" ;;
vfat) make="mkfs.fat -F 32 -s 8" repair="fsck.fat -a" ;;
*) fail "FS=$FS: exfat or vfat" ;;
esac
for tool in "${make%% *}" "${repair%% *}" losetup mount; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop "$FS" nls_utf8 nls_cp437 nls_ascii || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 320M "$DIR/disk"
$make "$DIR/disk" >/dev/null
mount -t "$FS" -o "loop,$OPTION" "$DIR/disk" "$DIR/mnt" || fail "cannot mount $FS"
mkdir "$DIR/mnt/d"
[ "$BETWEEN" = 0 ] || echo text >"$DIR/mnt/between"
sync
# 4096 bytes are 128 entries, and a name takes three of them on exFAT, and two on FAT.
for n in $(seq 1 70); do
	: >"$DIR/mnt/d/n$n"
done
cp --sparse=always "$DIR/disk" "$DIR/crashed"
umount "$DIR/mnt"

echo "Linux $(uname -r), $FS,$OPTION. What $repair says:"
$repair "$DIR/crashed" || [ $? = 1 ] || fail "$repair ended with an error"
mount -t "$FS" -o loop "$DIR/crashed" "$DIR/after" || fail "the crashed $FS cannot be mounted"
count=$(ls "$DIR/after/d" | wc -l)
if [ "$count" = 70 ]; then
	echo "KEPT: all 70 names are there"
else
	echo "BROKEN: of 70 names that were made with $OPTION, $count are there after a power cut"
fi
