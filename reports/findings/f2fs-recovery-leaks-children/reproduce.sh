#!/bin/sh
# F2FS: after a power cut, roll-forward recovery removes a directory that is not empty, if a file that was fsynced has its
# name by now. What was in it has no name any more, and its nodes and blocks are never freed: fsck.f2fs finds them.
#
# After fsync has returned, the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at
# all; the copy is mounted, unmounted, and checked.
#
#   OLD=removed     the default: `s` and what is in it are removed, and a file `s` is made and fsynced
#   OLD=moved       `s` moves into another directory, with what is in it, and a file `s` is made and fsynced
#   OLD=empty       control: as removed, but there was nothing in `s` at the last checkpoint
#
# Needs root, loop devices and f2fs-tools. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
OLD=${OLD:-removed}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup mkfs.f2fs fsck.f2fs; do
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
mkfs.f2fs "$dir/disk" >/dev/null 2>&1 || fail "mkfs.f2fs failed"
must mount -t f2fs -o loop "$dir/disk" "$dir/mnt"
must mkdir "$dir/mnt/e"
case $OLD in
removed | moved)
	must mkdir "$dir/mnt/s"
	must dd if=/dev/zero of="$dir/mnt/s/x" bs=4096 count=16 status=none
	;;
empty) must mkdir "$dir/mnt/s" ;;
*) fail "OLD=$OLD: removed, moved or empty" ;;
esac
must sync -f "$dir/mnt" # sync(1) of a file system is syncfs(2): F2FS writes a checkpoint
case $OLD in
moved) must mv "$dir/mnt/s" "$dir/mnt/e/s" ;;
*) must rm -r "$dir/mnt/s" ;;
esac
echo new >"$dir/mnt/s"
must sync "$dir/mnt/s" # sync(1) of a file is fsync(2)
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

must mount -t f2fs -o loop "$dir/after" "$dir/mnt"
echo "Linux $(uname -r), $OLD. After the power cut:"
(cd "$dir/mnt" && ls -lR .)
new=$(cat "$dir/mnt/s" 2>&1)
must umount "$dir/mnt"
[ "$new" = new ] || fail "s is not what was synced: $new"
found=0
fsck.f2fs --dry-run "$dir/after" >"$dir/said" 2>&1 </dev/null || found=$?
grep -e unreachable -e Unreachable -e Fail "$dir/said"
echo "fsck.f2fs --dry-run exits with $found"
if grep -q 'is unreachable' "$dir/said"; then
	echo "BROKEN: recovery has left what fsck.f2fs finds unreachable"
elif [ "$found" = 0 ]; then
	echo "KEPT: fsck.f2fs finds nothing wrong"
else
	fail "fsck.f2fs exits with $found"
fi
