#!/bin/sh
# ext4 with fast commits: after a power cut, e2fsck replays the journal, calls the file system clean, and a file that
# fsync had acknowledged cannot be read any more.
#
#   REPLAY=e2fsck          the default: e2fsck -p replays the journal, as at boot
#   REPLAY=kernel          control: a mount replays it
#   FEATURE=^fast_commit   control: without fast commits
#   FILES=20               control: there were so many files before, so that the inodes lie in another block of the inode
#                          table than the journal's
#   E2FSCK=/path/e2fsck    another e2fsck
#
# Needs root, loop devices and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
REPLAY=${REPLAY:-e2fsck} FEATURE=${FEATURE:-fast_commit} FILES=${FILES:-0} E2FSCK=${E2FSCK:-e2fsck}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk cmp dd mkfs.ext4 "$E2FSCK"; do
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
made=0
while [ "$made" -lt "$FILES" ]; do
	made=$((made + 1))
	must touch "$dir/mnt/before$made"
done
must touch "$dir/mnt/f"
must umount "$dir/mnt"
must mount -t ext4 -o loop "$dir/disk" "$dir/mnt"
printf 'precious\n' >"$dir/g"
must cp "$dir/g" "$dir/mnt/g"
must sync "$dir/mnt/g" # sync(1) of a file is fsync(2). The first one after a mount is a full commit
must dd if="$dir/g" of="$dir/mnt/f" conv=notrunc status=none
must sync "$dir/mnt/f" # this one is a fast commit
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

echo "Linux $(uname -r), $("$E2FSCK" -V 2>&1 | head -n 1), FEATURE=$FEATURE, REPLAY=$REPLAY, FILES=$FILES"
if [ "$REPLAY" = e2fsck ]; then
	"$E2FSCK" -p "$dir/after" >"$dir/said" 2>&1
	code=$?
	sed 's/^/  /' "$dir/said"
	echo "e2fsck -p ended with $code"
	[ "$code" -le 1 ] || fail "e2fsck -p ended with $code"
fi
must mount -t ext4 -o loop "$dir/after" "$dir/mnt"
for file in f g; do
	if said=$(cmp "$dir/g" "$dir/mnt/$file" 2>&1); then
		echo "$file is as fsync acknowledged it"
	else
		echo "$file: $said"
		broken="${broken:-}$file"
	fi
done
if [ -n "${broken:-}" ]; then
	echo "BROKEN: a file that fsync had acknowledged is lost after the journal was replayed"
else
	echo "KEPT: both files are as fsync acknowledged them"
fi
