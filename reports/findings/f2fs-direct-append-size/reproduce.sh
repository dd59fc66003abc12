#!/bin/sh
# F2FS: an append with O_DIRECT and O_DSYNC into blocks that were allocated beyond the end of the file is lost with the
# power, although write(2) has returned.
#
#   FLAGS=direct,dsync  the default; FLAGS=direct,sync: O_SYNC; FLAGS=dsync: control, without O_DIRECT
#   ALLOCATE=keep       fallocate with FALLOC_FL_KEEP_SIZE first, the default; ALLOCATE=no: control, without
#   NAMES=2             the file has a second name
#   FSYNC=1             control: fsync after the write
#   FS=ext4, FS=xfs     control: the same on ext4, on XFS
#
# Needs root and loop devices. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
FLAGS=${FLAGS:-direct,dsync} ALLOCATE=${ALLOCATE:-keep} FSYNC=${FSYNC:-0} NAMES=${NAMES:-1} FS=${FS:-f2fs}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk cmp dd dmesg fallocate "mkfs.$FS"; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
case $FS in
f2fs) make="-q -f" ;;
ext4) make="-q -F" ;;
xfs) make="-q" ;;
*) fail "FS=$FS: f2fs, ext4 or xfs" ;;
esac
modprobe -q -a loop "$FS" || : # may be loaded already, or built in

dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

mkdir "$dir/mnt"
must truncate -s 400M "$dir/disk"
must "mkfs.$FS" $make "$dir/disk"
must mount -t "$FS" -o loop "$dir/disk" "$dir/mnt"
must dd if=/dev/urandom of="$dir/wanted" bs=4096 count=3 status=none
must dd if="$dir/wanted" of="$dir/mnt/f" bs=4096 count=2 status=none
[ "$NAMES" = 1 ] || must ln "$dir/mnt/f" "$dir/mnt/g"
must sync -f "$dir/mnt"
[ "$ALLOCATE" = no ] || must fallocate -n -l 65536 "$dir/mnt/f" # -n: FALLOC_FL_KEEP_SIZE
must sync "$dir/mnt/f"
must dd if="$dir/wanted" of="$dir/mnt/f" bs=4096 skip=2 count=1 oflag="append,$FLAGS" conv=notrunc status=none
[ "$FSYNC" = 0 ] || must sync "$dir/mnt/f"
# The power fails here. write(2) has returned, and nothing was written since: this is what the disk holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

dmesg -C 2>/dev/null || :
must mount -t "$FS" -o loop "$dir/after" "$dir/mnt"
echo "Linux $(uname -r), $FS, FLAGS=$FLAGS ALLOCATE=$ALLOCATE NAMES=$NAMES FSYNC=$FSYNC. What the kernel said:"
dmesg | awk '/F2FS-fs|EXT4-fs|XFS/ { print "  " $0 }'
size=$(wc -c <"$dir/mnt/f") || fail "there is no f"
if cmp -s "$dir/wanted" "$dir/mnt/f"; then
	echo "KEPT: f holds what write(2) acknowledged, $size bytes"
elif [ "$size" = 8192 ]; then
	echo "BROKEN: write(2) had returned, and after the power cut the 4096 bytes are not there: f has $size bytes"
else
	fail "f has $size bytes, and is neither"
fi
