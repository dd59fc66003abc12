#!/bin/sh
# FAT: fsync(2) of a file that the kernel has written back on its own does not write the file's directory entry: after
# a power cut the file has its old size. Mended by "fat: Fix missed inode writeback during fsync(2)".
#
# A synced file changes, and the kernel's flusher runs: it copies the inode into a block of the directory, which stays
# dirty. fsync finds the inode clean. The disk is copied as it is when fsync has returned, so the disk lost nothing.
# The flusher comes every 5 seconds to what has been dirty for 30. A neighbour is made 7 seconds earlier, so that the
# device's own dirty blocks are not written right behind the inode, but 5 seconds before, and then 30 seconds later. A
# device that has written nothing yet gets no share of dirty memory, and all of it is written at once: hence 24 MiB.
#
#   CHANGE=append  the file grows, the default; rename: it gets another name; chmod: it becomes read-only
#   WAIT=40        seconds from the change to fsync, the default; WAIT=0: control, the flusher was not there yet
#   AGAIN=1        control: a touch of the file behind the flusher, before fsync
#   FS=vfat        the default; FS=udf; FS=exfat, FS=ext4: controls
#
# Needs root and loop devices. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CHANGE=${CHANGE:-append} WAIT=${WAIT:-40} AGAIN=${AGAIN:-0} FS=${FS:-vfat}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in "mkfs.$FS" losetup mount stat; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop "$FS" nls_cp437 nls_ascii nls_utf8 || : # may be there already, or built in

case $FS in
vfat) make="-F 32 -s 1" ;;
exfat) make="-c 4096" ;;
udf) make="--media-type=hd --blocksize=512" ;;
ext4) make="-q -F -E lazy_itable_init=0,lazy_journal_init=0" ;;
*) fail "FS=$FS: vfat, udf, exfat or ext4" ;;
esac

four_kib() {
	dd if=/dev/zero bs=4096 count=1 status=none
}

# Name, size and permissions of the file, whichever name it has.
state() {
	(cd "$DIR/mnt" && stat -c "%n %s %A" f g 2>/dev/null) || :
}

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/disk"
"mkfs.$FS" $make "$DIR/disk" >/dev/null
mount -t "$FS" -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount $FS"
dd if=/dev/zero of="$DIR/mnt/large" bs=1M count=24 status=none
four_kib >"$DIR/mnt/f"
sync
was=$(state) file=f
: >"$DIR/mnt/neighbour"
sleep 7
case $CHANGE in
append) four_kib >>"$DIR/mnt/f" ;;
rename) mv "$DIR/mnt/f" "$DIR/mnt/g" && file=g ;;
chmod) chmod a-w "$DIR/mnt/f" ;;
*) fail "CHANGE=$CHANGE: append, rename or chmod" ;;
esac
wanted=$(state)
sleep "$WAIT"
[ "$AGAIN" = 0 ] || touch "$DIR/mnt/$file"
sync "$DIR/mnt/$file"
# The power fails here. fsync has returned, and nothing was written since: this is what the disk holds.
cp --sparse=always "$DIR/disk" "$DIR/after"
umount "$DIR/mnt"

echo "Linux $(uname -r), FS=$FS CHANGE=$CHANGE WAIT=$WAIT AGAIN=$AGAIN"
mount -t "$FS" -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed $FS cannot be mounted"
is=$(state)
echo "Before the change: $was; at fsync: $wanted; after the power cut: $is"
if [ "$is" = "$wanted" ]; then
	echo "KEPT: after the power cut, $file is as it was at fsync"
else
	echo "BROKEN: $CHANGE and fsync of $file returned, and after a power cut there is: $is"
fi
