#!/bin/sh
# ext4, mounted with ro,noload after a power cut: the mount writes to the disk, if a file had lost its last name while it
# was open. The documentation names these options to prevent writes.
#
# The disk is copied while the file system is frozen and the file is open, which is what a power cut leaves then. The
# copy is mounted from a device that can be written to, and compared with what it was.
#
#   HELD=yes        the default
#   HELD=no         control: no file is open
#
# Needs root, loop devices and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
HELD=${HELD:-yes}
DIR=$(mktemp -d)
device=

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	exec 9<&-
	umount "$DIR/mnt" 2>/dev/null || :
	umount "$DIR/after" 2>/dev/null || :
	[ -z "$device" ] || losetup -d "$device" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in mkfs.ext4 fsfreeze losetup mount cmp; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 64M "$DIR/disk"
mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0 "$DIR/disk"
mount -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4"
echo data >"$DIR/mnt/f"
sync
[ "$HELD" = no ] || exec 9<"$DIR/mnt/f"
rm "$DIR/mnt/f"
sync
fsfreeze -f "$DIR/mnt"
cp --sparse=always "$DIR/disk" "$DIR/crashed"
fsfreeze -u "$DIR/mnt"
exec 9<&-
umount "$DIR/mnt"

cp --sparse=always "$DIR/crashed" "$DIR/copy"
device=$(losetup -f --show "$DIR/copy") || fail "no loop device"
mount -t ext4 -o ro,noload "$device" "$DIR/after" || fail "cannot mount with ro,noload"
umount "$DIR/after"
losetup -d "$device"
device=
echo "Linux $(uname -r), ro,noload. What the kernel said:"
dmesg | grep -E 'EXT4-fs' | tail -n 4
if cmp -s "$DIR/crashed" "$DIR/copy"; then
	echo "KEPT: nothing was written"
else
	echo "BROKEN: $(cmp -l "$DIR/crashed" "$DIR/copy" | wc -l) bytes of the disk are other ones after a mount with ro,noload"
fi
