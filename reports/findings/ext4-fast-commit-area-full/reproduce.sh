#!/bin/sh
# ext4 with fast_commit: if the power fails while the fast-commit area is full to its last block, the file system cannot
# be mounted any more.
#
# A file grows by one block at a time, each written with O_DSYNC, which takes one block of the fast-commit area. After
# each write the disk is copied as it is, which is what a power cut leaves of a disk that loses nothing at all, and the
# copy is mounted.
#
#   JOURNAL=8       MiB; mkfs makes an area of 16 blocks. JOURNAL= is mkfs's own choice for a disk of 1 GiB
#   FEATURE=^fast_commit    control: the same without fast commits
#
# Needs root and loop devices. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
JOURNAL=${JOURNAL-8} FEATURE=${FEATURE:-fast_commit}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	umount "$DIR/after" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in mkfs.ext4 e2fsck dumpe2fs losetup mount dd awk; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s "$([ -n "$JOURNAL" ] && echo 64M || echo 1G)" "$DIR/disk"
mkfs.ext4 -q -F -b 4096 ${JOURNAL:+-J size=$JOURNAL} -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$DIR/disk"
area=$(dumpe2fs -h "$DIR/disk" 2>/dev/null | awk -F: '/Fast commit length/ { print $2 + 0 }')
[ "${area:-0}" != 0 ] || area=16 # without the feature: as many writes as with it

# commit=: no commit by the clock in between, which would empty the area; by default there is one every 5 s.
mount -o loop,commit=3600 "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4 with $FEATURE"
: >"$DIR/mnt/bar"
sync "$DIR/mnt/bar"

echo "Linux $(uname -r), $FEATURE, an area of $area blocks"
for n in $(seq 1 $((area + 2))); do
	dd if=/dev/zero of="$DIR/mnt/bar" bs=4096 count=1 oflag=append,dsync conv=notrunc status=none
	[ "$n" -ge $((area - 3)) ] || continue # far from full
	cp --sparse=always "$DIR/disk" "$DIR/crashed"
	cp --sparse=always "$DIR/crashed" "$DIR/copy"
	if said=$(LC_ALL=C mount -o loop "$DIR/copy" "$DIR/after" 2>&1); then
		size=$(wc -c <"$DIR/after/bar")
		umount "$DIR/after"
		echo "  power cut after write $n: mounted, bar has $size bytes"
		[ "$size" -ge $((n * 4096)) ] || fail "bar is too short, which is another fault"
		continue
	fi
	case $said in *"tructure needs cleaning"*) ;; *) fail "mount: $said" ;; esac
	echo "  power cut after write $n: $(echo "$said" | head -n 1)"
	dmesg | grep -E 'JBD2|EXT4-fs .*journal' | tail -n 3
	echo "what e2fsck -f -y does about it:"
	e2fsck -f -y "$DIR/crashed" 2>&1 || echo "e2fsck exits with $?"
	left="and not even after e2fsck"
	if mount -o loop "$DIR/crashed" "$DIR/after"; then
		left="and e2fsck -y lets it mount, without bar"
		[ ! -e "$DIR/after/bar" ] || left="and e2fsck -y leaves $(wc -c <"$DIR/after/bar") bytes of bar"
	fi
	echo "BROKEN: $n synced writes, a power cut, and mount(2) fails with EUCLEAN; $left"
	exit 0
done
echo "KEPT: after every number of synced writes up to $n, the crashed file system can be mounted"
