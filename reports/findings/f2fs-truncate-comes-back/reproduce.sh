#!/bin/sh
# F2FS: data that was cut off comes back after a power cut, although the truncate was synced.
#
# A block of f is written and synced, f is cut to 0 bytes and synced, and made 16 MiB long by truncate and synced. Then
# the power fails. The block has to be zero.
#
#   AT=2048           the block's number in f. The default, at 8 MiB, is one that no longer fits in the inode's own
#                     list of blocks; AT=256 (1 MiB): control, one that does
#   GROW=after        f is made longer after the power cut, by the next user
#   CHECKPOINT=first  a checkpoint (syncfs) after the first fsync
#   CHECKPOINT=cut    control: a checkpoint after the truncate to 0
#   FS=ext4           control: the same on ext4
#
# Needs root and loop devices. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
AT=${AT:-2048} GROW=${GROW:-before} CHECKPOINT=${CHECKPOINT:-} FS=${FS:-f2fs}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk cmp dd dmesg "mkfs.$FS"; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
case $FS in
f2fs) make="-q -f" ;;
ext4) make="-q -F" ;;
*) fail "FS=$FS: f2fs or ext4" ;;
esac
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
must "mkfs.$FS" $make "$dir/disk"
must mount -t "$FS" -o loop "$dir/disk" "$dir/mnt"
head -c 4096 /dev/zero | tr '\0' S >"$dir/secret"
# sync(1) of a file is fsync(2); sync -f is syncfs(2), at which F2FS writes a checkpoint.
must dd if="$dir/secret" of="$dir/mnt/f" bs=4096 seek="$AT" conv=notrunc status=none
must sync "$dir/mnt/f"
[ "$CHECKPOINT" != first ] || must sync -f "$dir/mnt"
must truncate -s 0 "$dir/mnt/f"
must sync "$dir/mnt/f"
[ "$CHECKPOINT" != cut ] || must sync -f "$dir/mnt"
if [ "$GROW" = before ]; then
	must truncate -s 16M "$dir/mnt/f"
	must sync "$dir/mnt/f"
fi
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
must umount "$dir/mnt"

dmesg -C 2>/dev/null || :
must mount -t "$FS" -o loop "$dir/after" "$dir/mnt"
echo "Linux $(uname -r), $FS, AT=$AT GROW=$GROW CHECKPOINT=$CHECKPOINT. What the kernel said:"
dmesg | awk '/F2FS-fs|EXT4-fs/ { print "  " $0 }'
[ -e "$dir/mnt/f" ] || fail "there is no f"
echo "f has $(wc -c <"$dir/mnt/f") bytes"
[ "$GROW" = before ] || must truncate -s 16M "$dir/mnt/f"
must dd if="$dir/mnt/f" of="$dir/found" bs=4096 skip="$AT" count=1 status=none
if cmp -s "$dir/secret" "$dir/found"; then
	echo "BROKEN: the data that was cut off is back in block $AT of f, although the truncate was synced"
elif cmp -s -n 4096 /dev/zero "$dir/found"; then
	echo "KEPT: block $AT of f is zero, as it was when fsync returned"
else
	fail "block $AT of f is neither"
fi
