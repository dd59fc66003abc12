#!/bin/sh
# F2FS: what fsync acknowledged is dropped if the first mount after a power cut is read-only, as that of a root file
# system is, and there was no checkpoint since the file system was mounted.
#
#   FIRST=ro        the default: mount -o ro, then mount -o remount,rw
#   FIRST=rw        control: the first mount is writable
#   FIRST=ro-once   the read-only mount is unmounted, and the next one is writable
#   CHECKPOINT=1    control: sync before the file is made, so that there was a checkpoint since the mount
#   FS=ext4         control: another file system
#
# Needs root, loop devices and f2fs-tools (or e2fsprogs). Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
FIRST=${FIRST:-ro} CHECKPOINT=${CHECKPOINT:-0} FS=${FS:-f2fs}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk dmesg "mkfs.$FS"; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
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
must truncate -s 100M "$dir/disk"
"mkfs.$FS" "$dir/disk" >/dev/null 2>&1 || fail "mkfs.$FS failed"
must mount -t "$FS" -o loop "$dir/disk" "$dir/mnt"
if [ "$CHECKPOINT" = 1 ]; then
	echo earlier >"$dir/mnt/earlier"
	must sync -f "$dir/mnt" # sync(1) of a file system is syncfs(2): F2FS writes a checkpoint
fi
echo data >"$dir/mnt/f"
must sync "$dir/mnt/f" # sync(1) of a file is fsync(2)
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp "$dir/disk" "$dir/after"
must umount "$dir/mnt"

dmesg -C 2>/dev/null || :
device=$(losetup -f --show "$dir/after") || fail "no loop device" # `-o loop,ro` would make it read-only, too
case $FIRST in
rw) must mount -t "$FS" "$device" "$dir/mnt" ;;
ro)
	must mount -t "$FS" -o ro "$device" "$dir/mnt"
	must mount -o remount,rw "$dir/mnt"
	;;
ro-once)
	must mount -t "$FS" -o ro "$device" "$dir/mnt"
	must umount "$dir/mnt"
	must mount -t "$FS" "$device" "$dir/mnt"
	;;
*) fail "FIRST=$FIRST: ro, rw or ro-once" ;;
esac
echo "Linux $(uname -r), $FS, FIRST=$FIRST CHECKPOINT=$CHECKPOINT. What the kernel said:"
dmesg | awk '/F2FS-fs|EXT4-fs/ { print "  " $0 }'
if [ "$(cat "$dir/mnt/f" 2>/dev/null)" = data ]; then
	echo "KEPT: f is there after the power cut, as fsync said"
elif [ -e "$dir/mnt/f" ]; then
	echo "BROKEN: fsync had returned, and after the power cut f has other contents"
else
	echo "BROKEN: fsync had returned, and after the power cut there is no f"
fi
