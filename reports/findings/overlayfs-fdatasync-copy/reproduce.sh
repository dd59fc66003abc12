#!/bin/sh
# overlayfs on ext4: a file of the lower layer is opened for writing, overwritten and synced with fdatasync(2). After a
# power cut it has its old contents: what was synced is in a copy that has no name.
#
# The disk is copied as it is when the sync has returned, so the disk lost nothing. The copy is mounted, and the file is
# read.
#
#   CALL=fdatasync the default; CALL=msync: a store into a mapping, and MS_SYNC; CALL=dsync: a write with O_DSYNC
#   CALL=fsync     control
#   APPEND=1       control: bytes are added to the file before its fdatasync
#   FS=ext4        the default; FS=f2fs, FS=xfs, FS=btrfs: on those
#   LAYER=upper    control: the file is one of the upper layer
#   LAYER=none     control: on the file system without overlayfs
#
# Needs root, loop devices, overlayfs and xfs_io. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CALL=${CALL:-fdatasync} APPEND=${APPEND:-0} FS=${FS:-ext4} LAYER=${LAYER:-lower}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/merged" 2>/dev/null || :
	umount "$DIR/mnt" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in "mkfs.$FS" losetup mount dd tr dmesg xfs_io; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop "$FS" overlay || : # may be there already, or built in

# Nothing is to be committed by the clock in front of the power cut.
case $FS in
btrfs) make="-q -f -K" options=,commit=300 ;;
ext4) make="-q -F -E lazy_itable_init=0,lazy_journal_init=0" options=,commit=300 ;;
f2fs) make="-q -f -t 0" options= ;;
xfs) make="-q -f -K" options= ;;
*) fail "FS=$FS: ext4, f2fs, xfs or btrfs" ;;
esac
case $LAYER in
lower | upper) tree=$DIR/merged ;;
none) tree=$DIR/mnt/upper ;;
*) fail "LAYER=$LAYER: lower, upper or none" ;;
esac

overlay_on() {
	[ "$LAYER" = none ] ||
		mount -t overlay -o "lowerdir=$DIR/mnt/lower,upperdir=$DIR/mnt/upper,workdir=$DIR/mnt/work" \
			overlay "$DIR/merged" || fail "cannot mount overlayfs"
}

overlay_off() {
	[ "$LAYER" = none ] || umount "$DIR/merged"
}

bytes() { # LETTER NUMBER
	dd if=/dev/zero bs="$2" count=1 status=none | tr '\0' "$1"
}

first() {
	dd if="$tree/f" bs=4 count=1 status=none
}

mkdir "$DIR/mnt" "$DIR/merged"
truncate -s 320M "$DIR/disk"
"mkfs.$FS" $make "$DIR/disk" >/dev/null
mount -t "$FS" -o "loop$options" "$DIR/disk" "$DIR/mnt" || fail "cannot mount $FS"
mkdir "$DIR/mnt/lower" "$DIR/mnt/upper" "$DIR/mnt/work"
[ "$LAYER" != lower ] || bytes O 8192 >"$DIR/mnt/lower/f"
overlay_on
[ "$LAYER" = lower ] || bytes O 8192 >"$tree/f"
sync
[ "$APPEND" = 0 ] || bytes O 8192 >>"$tree/f"
case $CALL in
fdatasync | fsync) xfs_io -c "pwrite -q -S 0x4e 0 512" -c "$CALL" "$tree/f" ;;
msync) xfs_io -c "mmap -rw 0 4096" -c "mwrite -S 0x4e 0 512" -c "msync -s" "$tree/f" ;;
dsync) bytes N 512 | dd of="$tree/f" bs=512 oflag=dsync conv=notrunc status=none ;;
*) fail "CALL=$CALL: fdatasync, msync, dsync or fsync" ;;
esac
# The power fails here. The sync has returned, and nothing was written since: this is what the disk holds.
cp --sparse=always "$DIR/disk" "$DIR/after"
[ "$(first)" = NNNN ] || fail "f was not overwritten"
overlay_off
umount "$DIR/mnt"

dmesg -C 2>/dev/null || :
mount -t "$FS" -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed $FS cannot be mounted"
echo "Linux $(uname -r), $FS, CALL=$CALL APPEND=$APPEND LAYER=$LAYER. What the kernel said:"
dmesg | awk '/EXT4-fs|F2FS-fs|XFS|BTRFS/ { print "  " $0 }'
echo "Files in the upper layer: $(ls "$DIR/mnt/upper" | tr '\n' ' ')"
overlay_on
case $(first) in
NNNN) echo "KEPT: f has what was synced" ;;
OOOO) echo "BROKEN: the sync returned, and after a power cut f has its old contents" ;;
*) fail "f begins with '$(first)'" ;;
esac
overlay_off
