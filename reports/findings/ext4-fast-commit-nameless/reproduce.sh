#!/bin/sh
# ext4 with fast_commit: fsync of a file without a name (O_TMPFILE), a power cut, and the file system does not mount.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted. If it cannot be, e2fsck repairs another copy, and what is left there is shown.
#
#   MAKE=tmpfile    open(O_TMPFILE), write, fsync: the default
#   MAKE=unlinked   open an old file, unlink it, write, fsync
#   MAKE=create     control: open(O_CREAT), write, fsync
#   FEATURE=^fast_commit    control: O_TMPFILE without fast commits
#
# Needs root, loop devices, and xfs_io for O_TMPFILE. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FEATURE=${FEATURE:-fast_commit} MAKE=${MAKE:-tmpfile}
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

for tool in mkfs.ext4 e2fsck losetup mount xfs_io; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 64M "$DIR/disk"
mkfs.ext4 -q -F -b 4096 -J size=8 -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$DIR/disk"
# commit=: no commit by the clock in between; by default there is one every 5 s.
mount -o loop,commit=3600 "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4 with $FEATURE"
mkdir "$DIR/mnt/A"
echo old >"$DIR/mnt/A/old"
sync
# What an fsync before has made durable, to see what becomes of it.
xfs_io -f -c "pwrite -q -S 0x42 0 5000" -c fsync "$DIR/mnt/A/before"
case $MAKE in
tmpfile) xfs_io -T -c "pwrite -q -S 0x41 0 5000" -c fsync "$DIR/mnt/A" ;;
unlinked)
	exec 3<>"$DIR/mnt/A/old"
	rm "$DIR/mnt/A/old"
	xfs_io -c "pwrite -q -S 0x41 0 5000" -c fsync /proc/self/fd/3
	;;
create) xfs_io -f -c "pwrite -q -S 0x41 0 5000" -c fsync "$DIR/mnt/A/foo" ;;
*) fail "MAKE=$MAKE: tmpfile, unlinked or create" ;;
esac
cp "$DIR/mnt/A/before" "$DIR/wanted"
cp --sparse=always "$DIR/disk" "$DIR/crashed"
cp --sparse=always "$DIR/disk" "$DIR/repaired"
exec 3<&-

echo "Linux $(uname -r), $FEATURE, fsync of a file made by $MAKE. After the power cut:"
if mount -o loop "$DIR/crashed" "$DIR/after"; then
	ls -lA "$DIR/after/A"
	cmp "$DIR/wanted" "$DIR/after/A/before" || fail "mounted, and A/before is not what was synced: another bug"
	echo "KEPT: the file system mounts, and A/before is what was synced"
	exit 0
fi
dmesg | grep -i -e ext4-fs -e jbd2 | tail -n 5
e2fsck -f -y "$DIR/repaired" || echo "e2fsck -f -y exits with $?"
mount -o loop "$DIR/repaired" "$DIR/after" || fail "the repaired file system cannot be mounted"
ls -lA "$DIR/after/A"
if cmp "$DIR/wanted" "$DIR/after/A/before"; then
	left="e2fsck -y repairs it"
else
	left="after e2fsck -y, A/before is not what was synced"
fi
echo "BROKEN: fsync returned, and after a power cut the file system does not mount; $left"
