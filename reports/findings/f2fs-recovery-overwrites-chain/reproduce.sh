#!/bin/sh
# F2FS: if the power fails again while the first mount writes the checkpoint at the end of roll-forward recovery, files
# are gone that fsync had acknowledged before the first power cut.
#
#   CUT=checkpoint   the default: the second power cut comes just before recovery's checkpoint pack is written
#   CUT=none         control: the recovery is not disturbed
#   CHECKPOINT=1     control: a checkpoint behind the fsync, so that there is nothing to roll forward
#
# Needs root, loop devices and f2fs-tools. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
CUT=${CUT:-checkpoint} CHECKPOINT=${CHECKPOINT:-0}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk cmp dd dmesg od mkfs.f2fs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop f2fs || : # may be loaded already, or built in

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

field() { # of the superblock, by its offset: a little-endian number of 32 bits
	od -An -tu4 -j $((1024 + $1)) -N 4 "$dir/disk" | tr -d ' '
}

mkdir "$dir/mnt"
must truncate -s 100M "$dir/disk"
mkfs.f2fs "$dir/disk" >/dev/null 2>&1 || fail "mkfs.f2fs failed"
checkpoints=$(field 76) behind=$(field 80) main=$(field 92) # struct f2fs_super_block: cp_, sit_ and main_blkaddr
must mount -t f2fs -o loop "$dir/disk" "$dir/mnt"
echo data >"$dir/mnt/f"
must sync "$dir/mnt/f" # sync(1) of a file is fsync(2)
if [ "$CHECKPOINT" = 1 ]; then
	must sync -f "$dir/mnt" # sync(1) of a file system is syncfs(2): F2FS writes a checkpoint
fi
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

dmesg -C 2>/dev/null || :
if [ "$CUT" = checkpoint ]; then
	must cp --sparse=always "$dir/after" "$dir/recovered"
	must mount -t f2fs -o loop "$dir/recovered" "$dir/mnt"
	must cp --sparse=always "$dir/recovered" "$dir/checkpointed" # what the disk holds when mount returns
	must umount "$dir/mnt"
	# What it held before recovery wrote its checkpoint pack: all but the superblock and the area of the checkpoints is
	# as recovery left it.
	cmp -l "$dir/after" "$dir/checkpointed" | awk '{ print int(($1 - 1) / 4096) }' | uniq >"$dir/changed"
	while read -r block; do
		[ "$block" -ge "$behind" ] || continue
		must dd if="$dir/checkpointed" of="$dir/after" bs=4096 skip="$block" seek="$block" count=1 conv=notrunc status=none
	done <"$dir/changed"
	echo "checkpoints: from block $checkpoints; main area: from block $main. Recovery wrote the blocks" $(cat "$dir/changed")
fi
must mount -t f2fs -o loop "$dir/after" "$dir/mnt"
echo "Linux $(uname -r), CUT=$CUT CHECKPOINT=$CHECKPOINT. What the kernel said:"
dmesg | awk '/F2FS-fs/ { print "  " $0 }'
if [ "$(cat "$dir/mnt/f" 2>/dev/null)" = data ]; then
	echo "KEPT: f is there after the power cuts, as fsync said"
elif [ -e "$dir/mnt/f" ]; then
	echo "BROKEN: fsync had returned, and after the power cuts f has other contents"
else
	echo "BROKEN: fsync had returned, and after the power cuts there is no f"
fi
