#!/bin/sh
# NILFS2: if the power fails during a sync whose log spans two segments, recovery takes the checkpoint at the log's end,
# although the log's beginning is not on the disk. What was synced long before is gone with it.
#
#   LOST=beginning   the default: of the log of the sync, the part in the first segment is not on the disk
#   LOST=block       of that part, one block of 4 KiB is not: the first with the name of the new file
#   LOST=end         control: the part in the second segment is not
#   LOST=all         control: nothing of it is
#   LOST=nothing     control: all of it is; the superblocks alone are as before
#   MIB=1            control: the log fits the first segment (with LOST=block)
#
# Needs root, loop devices and nilfs-tools. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
LOST=${LOST:-beginning} MIB=${MIB:-12}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk cmp dd dmesg od grep mkfs.nilfs2; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop nilfs2 || : # may be loaded already, or built in

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

# --- a file that is synced, and a sync that is not over when the power fails ---------------------

mkdir "$dir/mnt"
must truncate -s 132M "$dir/disk" # 33792 blocks; the second superblock is in the last one
must mkfs.nilfs2 -q -f -K "$dir/disk"
segment=$(od -An -tu4 -j $((1024 + 48)) -N 4 "$dir/disk" | tr -d ' ') # s_blocks_per_segment
[ "$segment" = 2048 ] || fail "segments of $segment blocks, where 2048 are expected"
must mount -i -t nilfs2 -o loop "$dir/disk" "$dir/mnt" # -i: no cleaner
echo precious >"$dir/mnt/old"
must sync
must cp --sparse=always "$dir/disk" "$dir/before"
must dd if=/dev/zero of="$dir/mnt/the-new-file" bs=1M count="$MIB" status=none
must sync
must cp --sparse=always "$dir/disk" "$dir/synced"
must umount "$dir/mnt"

# take FILE FROM UNTIL: these blocks of the disk at the power cut are as in FILE
take() {
	must dd if="$1" of="$dir/after" bs=4096 skip="$2" seek="$2" count=$(($3 - $2)) conv=notrunc status=none
}

# The superblocks are written last, behind a flush. Until then the disk may lose whatever the sync has written.
must cp --sparse=always "$dir/synced" "$dir/after"
take "$dir/before" 0 1
take "$dir/before" 33791 33792
cmp -l "$dir/before" "$dir/after" | awk '{ print int(($1 - 1) / 4096) }' | uniq >"$dir/changed"
echo "Linux $(uname -r), LOST=$LOST MIB=$MIB. The sync wrote" \
	"$(awk '$1 < 2048' "$dir/changed" | wc -l) blocks of segment 0, $(awk '$1 >= 2048' "$dir/changed" | wc -l) behind it."
case $LOST in
beginning) take "$dir/before" 1 2048 ;;
block)
	while read -r block; do
		! dd if="$dir/synced" bs=4096 skip="$block" count=1 status=none | grep -q the-new-file || break
	done <"$dir/changed"
	[ "$block" -lt 2048 ] || fail "no block of segment 0 has the new name"
	echo "Lost: block $block"
	take "$dir/before" "$block" $((block + 1))
	;;
end) take "$dir/before" 2048 33792 ;;
all) take "$dir/before" 1 33792 ;;
nothing) ;;
*) fail "LOST=$LOST: beginning, block, end, all or nothing" ;;
esac

# --- what is left of it --------------------------------------------------------------------------

dmesg -C 2>/dev/null || :
mounted=yes
mount -i -t nilfs2 -o loop "$dir/after" "$dir/mnt" || mounted=
ls -l "$dir/mnt" 2>&1 | awk '{ print "  " $0 }'
kept=$(cat "$dir/mnt/old" 2>&1)
echo "What the kernel said:"
dmesg | awk '/NILFS/ { print "  " $0 }' | head -n 8
if [ -z "$mounted" ]; then
	echo "BROKEN: the file system does not mount"
elif [ "$kept" != precious ]; then
	echo "BROKEN: old was synced long before, and after the power cut: $kept"
else
	echo "KEPT: old is there after the power cut"
fi
