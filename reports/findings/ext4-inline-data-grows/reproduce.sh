#!/bin/sh
# ext4 with inline_data: a file whose contents are in its inode, and were synced, grows. If another commit comes between
# the beginning and the end of its writeback, a power cut leaves zeros where the synced contents were.
#
# The file g has 100 synced bytes, and gets 4096 more. fsync of g begins; each write takes three seconds here. Meanwhile
# fsync of an empty file commits the journal. The disk is copied when that has returned, with all that was written.
#
#   FEATURE=^inline_data   control: the contents are in a block
#   OTHER=0                control: no other commit
#   GROW=10                control: the file still fits into its inode
#   OPTION=dioread_lock    control: blocks are allocated as written ones, and the commit waits for their data
#
# Needs root, loop devices and dm-delay. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
FEATURE=${FEATURE:-inline_data} OTHER=${OTHER:-1} GROW=${GROW:-4096} OPTION=${OPTION:-dioread_nolock}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in mkfs.ext4 debugfs dmsetup losetup blockdev od tr head; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-delay ext4 || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=slow-$$
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	cd /
	umount "$dir/mnt" 2>/dev/null
	umount "$dir/after" 2>/dev/null
	dmsetup remove --retry "$name" 2>/dev/null
	[ -z "${disk-}" ] || losetup -d "$disk" 2>/dev/null
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

slow() { # milliseconds for each write
	must dmsetup suspend --nolockfs "$name"
	must dmsetup reload "$name" --table "0 $sectors delay $disk 0 0 $disk 0 $1"
	must dmsetup resume "$name"
}

letters() { # NUMBER LETTER
	head -c "$1" /dev/zero | tr '\0' "$2"
}

mkdir "$dir/mnt" "$dir/after"
must truncate -s 64M "$dir/disk"
must mkfs.ext4 -q -F -b 4096 -J size=8 -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$dir/disk"
disk=$(losetup -f --show "$dir/disk") || fail "no loop device"
sectors=$(blockdev --getsz "$disk")
must dmsetup create "$name" --table "0 $sectors delay $disk 0 0 $disk 0 0"
# commit=: no commit by the clock in between.
must mount -t ext4 -o "commit=3600,$OPTION" "/dev/mapper/$name" "$dir/mnt"
letters 100 o >"$dir/mnt/g"
must sync
letters "$GROW" n >>"$dir/mnt/g"
slow 3000
sync "$dir/mnt/g" & # sync(1) of a file is fsync(2)
writing=$!
sleep 1
if [ "$OTHER" = 1 ]; then
	: >"$dir/mnt/other"
	must sync "$dir/mnt/other"
fi
must cp --sparse=always "$dir/disk" "$dir/crashed"
returned=has
kill -0 "$writing" 2>/dev/null && returned="has not"
slow 0
must wait "$writing"

must mount -t ext4 -o loop "$dir/crashed" "$dir/after"
echo "Linux $(uname -r), $FEATURE, $OPTION. fsync of g $returned returned."
echo "After the power cut g has $(wc -c <"$dir/after/g") bytes, and begins so:"
head -c 100 "$dir/after/g" | od -A d -c | head -n 2
case $(head -c 100 "$dir/after/g" | tr '\0' 0) in
"$(letters 100 o)") echo "KEPT: the 100 bytes that sync had made durable are there" ;;
*) echo "BROKEN: sync had made 100 bytes durable; they were not written again, and are gone" ;;
esac
