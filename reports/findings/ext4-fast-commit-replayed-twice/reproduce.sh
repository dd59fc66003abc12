#!/bin/sh
# ext4 with fast commits: if the power fails again while the first mount replays a fast commit, the next replay leaves a
# wrong count of free blocks behind.
#
#   CUT=replay             the default: the second power cut comes when the replay has written everything home, and has not
#                          emptied the journal yet
#   CUT=none               control: the replay is not disturbed
#   FEATURE=^fast_commit   control: without fast commits
#
# Needs root, loop devices and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
CUT=${CUT:-replay} FEATURE=${FEATURE:-fast_commit}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk cmp dd dmesg mkfs.ext4 e2fsck debugfs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop ext4 || : # may be loaded already, or built in

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
must truncate -s 64M "$dir/disk"
mkfs.ext4 -q -b 4096 -O "$FEATURE" "$dir/disk" >&2 || fail "mkfs.ext4 failed"
must mount -t ext4 -o loop "$dir/disk" "$dir/mnt"
must dd if=/dev/zero of="$dir/mnt/f" bs=4096 count=8 status=none
must umount "$dir/mnt"
must mount -t ext4 -o loop "$dir/disk" "$dir/mnt"
must touch "$dir/mnt/other"
must sync "$dir/mnt/other" # sync(1) of a file is fsync(2). The first one after a mount is a full commit
must dd if=/dev/zero of="$dir/mnt/f" bs=4096 seek=8 count=8 conv=notrunc status=none
must sync "$dir/mnt/f" # this one is a fast commit
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

dmesg -C 2>/dev/null || :
must cp --sparse=always "$dir/after" "$dir/replayed"
must mount -t ext4 -o loop "$dir/replayed" "$dir/mnt"
must umount "$dir/mnt"
echo "Linux $(uname -r), FEATURE=$FEATURE, CUT=$CUT"
if [ "$CUT" = replay ]; then
	# What the disk held when the power failed again: home is as the replay left it, and the journal and the superblock,
	# which says that there is something to replay, are as before.
	debugfs -R 'blocks <8>' "$dir/after" 2>/dev/null | tr ' ' '\n' >"$dir/journal"
	cmp -l "$dir/after" "$dir/replayed" | awk '{ print int(($1 - 1) / 4096) }' | uniq |
		grep -vxF -e 0 -f "$dir/journal" >"$dir/home"
	echo "home has other contents after the replay in the blocks" $(cat "$dir/home")
	while read -r block; do
		must dd if="$dir/replayed" of="$dir/after" bs=4096 skip="$block" seek="$block" count=1 conv=notrunc status=none
	done <"$dir/home"
	must mount -t ext4 -o loop "$dir/after" "$dir/mnt"
	must umount "$dir/mnt"
	must cp --sparse=always "$dir/after" "$dir/replayed"
fi
echo "what the kernel said:"
dmesg | awk '/EXT4-fs|JBD2/ { print "  " $0 }'
if e2fsck -f -n "$dir/replayed" >"$dir/said" 2>&1; then
	echo "KEPT: e2fsck finds nothing wrong after recovery"
else
	awk '/wrong|differences/ { print "  " $0 }' "$dir/said"
	echo "BROKEN: e2fsck finds errors after recovery"
fi
