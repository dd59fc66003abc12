#!/bin/sh
# F2FS: after a power cut, roll-forward recovery gives a directory that ignores case two names that differ in case alone,
# if the last checkpoint has one of them and a file was made and fsynced under the other since. Each lookup finds the old
# file then: what was fsynced cannot be reached.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted and read.
#
#   NEW=name        the default: `Name` is removed, and `name` is made and fsynced
#   NEW=Name        control: the new file is spelled as the old one was
#   FOLDS=no        control: a directory that does not ignore case
#
# Needs root, loop devices, chattr and f2fs-tools, and a kernel with CONFIG_UNICODE. Prints BROKEN or KEPT; exits with 2
# if it could not tell.
set -u
NEW=${NEW:-name}
FOLDS=${FOLDS:-yes}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup mkfs.f2fs chattr; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop f2fs || : # may be loaded already, or built in

dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

mkdir "$dir/mnt"
must truncate -s 100M "$dir/disk"
mkfs.f2fs -O casefold -C utf8 "$dir/disk" >/dev/null 2>&1 || fail "mkfs.f2fs failed"
must mount -t f2fs -o loop "$dir/disk" "$dir/mnt"
must mkdir "$dir/mnt/d"
case $FOLDS in
yes) must chattr +F "$dir/mnt/d" ;;
no) ;;
*) fail "FOLDS=$FOLDS: yes or no" ;;
esac
echo old >"$dir/mnt/d/Name"
must sync -f "$dir/mnt" # sync(1) of a file system is syncfs(2): F2FS writes a checkpoint
must rm "$dir/mnt/d/Name"
echo new >"$dir/mnt/d/$NEW"
must sync "$dir/mnt/d/$NEW" # sync(1) of a file is fsync(2)
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

must mount -t f2fs -o loop "$dir/after" "$dir/mnt"
echo "Linux $(uname -r), NEW=$NEW, FOLDS=$FOLDS. After the power cut:"
ls "$dir/mnt/d"
found=$(cat "$dir/mnt/d/$NEW" 2>&1)
echo "d/$NEW holds: $found"
must umount "$dir/mnt"
case $found in
new) echo "KEPT: what was fsynced is there" ;;
*) echo "BROKEN: what was fsynced is not there" ;;
esac
