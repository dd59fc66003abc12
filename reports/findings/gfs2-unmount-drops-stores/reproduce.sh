#!/bin/sh
# GFS2: a clean unmount drops what was stored through a shared mapping and had not been written back. Where the store
# was into a hole, the file then shows what its new blocks held before.
#
#   WHERE=file  the default: the store is into blocks that the file has
#   WHERE=hole  the store is into a hole, on a file system that had a file of secrets, which was removed
#   SYNC=0      the default
#   SYNC=1      control: sync(2) before the unmount
#
# Needs root, loop devices, xfs_io and gfs2-utils. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
WHERE=${WHERE:-file} SYNC=${SYNC:-0}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in xfs_io cmp od tr mkfs.gfs2; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop gfs2 || : # may be loaded already, or built in

dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

letters() { # LETTER BYTES
	head -c "$2" /dev/zero | tr '\0' "$1"
}

in_use() {
	must mount -t gfs2 -o loop "$dir/disk" "$dir/mnt"
}

out_of_use() {
	must umount "$dir/mnt"
}

mkdir "$dir/mnt"
must truncate -s 64M "$dir/disk"
must mkfs.gfs2 -q -O -K -p lock_nolock -j 1 -J 8 "$dir/disk"
letters N 65536 >"$dir/wanted"

in_use
case $WHERE in
file)
	letters O 65536 >"$dir/mnt/f" || fail "cannot write f"
	;;
hole)
	# So many secrets that f gets some of their blocks.
	letters S 54525952 >"$dir/mnt/secrets" || fail "cannot write the secrets"
	must sync
	must rm "$dir/mnt/secrets"
	out_of_use # blocks are reused after that
	in_use
	must truncate -s 65536 "$dir/mnt/f"
	;;
*) fail "WHERE=$WHERE: file or hole" ;;
esac
out_of_use # nothing of it is left to be written

in_use
# The mapping is gone when xfs_io exits; its dirty pages are the kernel's to write.
must xfs_io -c "mmap 0 65536" -c "mwrite -S 0x4e 0 65536" "$dir/mnt/f"
cmp -s "$dir/wanted" "$dir/mnt/f" || fail "f does not hold what was stored while it is mounted, which is another fault"
[ "$SYNC" = 0 ] || must sync
out_of_use

in_use
echo "Linux $(uname -r), gfs2, WHERE=$WHERE, SYNC=$SYNC. After the unmount, f holds:"
od -A d -c "$dir/mnt/f" | head -8
if cmp -s "$dir/wanted" "$dir/mnt/f"; then
	echo "KEPT: after a clean unmount, f holds what was stored through the mapping"
elif grep -q S "$dir/mnt/f"; then
	echo "BROKEN: after a clean unmount, f holds what a removed file had held"
else
	echo "BROKEN: after a clean unmount, f does not hold what was stored through the mapping"
fi
