#!/bin/sh
# ext4 with fast_commit: if the power fails while a fast commit of several blocks is being written, the file system
# cannot be mounted any more.
#
# Many new files are there when one of them is synced, so the fast commit that fsync writes takes several blocks. The
# disk is copied before and after that fsync. A power cut in between leaves some of these blocks written: here the first
# few, in their order, and everything that was written before them. Nothing is lost that was written.
#
#   FILES=150       new files beside the one that is synced; FILES=0: control, a fast commit of one block
#   FEATURE=^fast_commit    control: the same without fast commits
#
# Needs root and loop devices. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FILES=${FILES:-150} FEATURE=${FEATURE:-fast_commit}
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

for tool in mkfs.ext4 debugfs e2fsck losetup mount cmp dd awk; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop ext4 || : # may be there already, or built in

mkdir "$DIR/mnt" "$DIR/after"
truncate -s 64M "$DIR/disk"
mkfs.ext4 -q -F -b 4096 -J size=8 -O "$FEATURE" -E nodiscard,lazy_itable_init=0 "$DIR/disk"
debugfs -R "blocks <8>" "$DIR/disk" 2>/dev/null >"$DIR/journal" # its blocks, in its order

# commit=: no commit by the clock in between.
mount -o loop,commit=3600 "$DIR/disk" "$DIR/mnt" || fail "cannot mount ext4 with $FEATURE"
mkdir "$DIR/mnt/d"
: >"$DIR/mnt/d/kept"
sync
cp --sparse=always "$DIR/disk" "$DIR/before"
for n in $(seq "$FILES"); do
	: >"$DIR/mnt/d/$n"
done
echo data >>"$DIR/mnt/d/kept"
sync "$DIR/mnt/d/kept"
cp --sparse=always "$DIR/disk" "$DIR/synced"

# The blocks of the journal that fsync wrote, without the journal's superblock, which is the first.
set -- $(cmp -l "$DIR/before" "$DIR/synced" | awk '
	NR == FNR { for (n = 2; n <= NF; n++) order[n] = $n; last = NF; next }
	{ changed[int(($1 - 1) / 4096)] = 1 }
	END { for (n = 2; n <= last; n++) if (order[n] in changed) print order[n] }' "$DIR/journal" -)
[ $# -gt 0 ] || fail "fsync wrote nothing into the journal"
echo "Linux $(uname -r), $FEATURE: fsync of one file, beside $FILES new ones, wrote $# blocks of the journal"

broken=
for written in $(seq 0 $#); do
	cp --sparse=always "$DIR/synced" "$DIR/crashed"
	n=0
	for block; do
		n=$((n + 1))
		[ $n -le "$written" ] || dd if="$DIR/before" of="$DIR/crashed" bs=4096 skip="$block" seek="$block" count=1 \
			conv=notrunc status=none
	done
	if said=$(LC_ALL=C mount -o loop "$DIR/crashed" "$DIR/after" 2>&1); then
		echo "  power cut after $written of $# blocks: mounted, kept has $(wc -c <"$DIR/after/d/kept") bytes"
		umount "$DIR/after"
		continue
	fi
	echo "  power cut after $written of $# blocks: $(echo "$said" | head -n 1 | sed 's/.*: //')"
	broken="$broken $written"
done
[ -n "$broken" ] || {
	echo "KEPT: after every number of blocks, the crashed file system can be mounted"
	exit 0
}
dmesg | grep -E 'JBD2|EXT4-fs .*journal' | tail -n 2
echo "BROKEN: a power cut while fsync wrote its $# blocks, and mount(2) fails; after so many:$broken"
