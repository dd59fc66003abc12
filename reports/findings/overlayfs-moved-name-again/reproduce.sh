#!/bin/sh
# overlayfs on btrfs: a file of the lower layer moves into another directory, a new file takes its name, and is synced.
# After a power cut the old file has neither name, although it had been durable for long.
#
# dm-log-writes logs a write once a later flush has made it durable, so its log up to the moment at which the fsync of the
# new file returned is what the platter held if the disk lost its cache in that moment. It is mounted, and both names are
# read.
#
#   FS=btrfs       the default
#   FS=ext4        control: the same on ext4; FS=xfs, FS=f2fs: on those
#   LAYER=upper    control: the old file is one of the upper layer
#   LAYER=none     control: on btrfs without overlayfs
#   ALL=1          control: sync(1) in front of the power cut
#
# Needs root, loop devices, dm-log-writes and overlayfs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FS=${FS:-btrfs} LAYER=${LAYER:-lower} ALL=${ALL:-0}
NAME=cut-$$ DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/merged" 2>/dev/null || :
	umount "$DIR/mnt" 2>/dev/null || :
	dmsetup remove "$NAME" 2>/dev/null || :
	for loop in $(losetup -n -O NAME,BACK-FILE | awk -v d="$DIR/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$loop"
	done
	rm -rf "$DIR"
}

for tool in dmsetup losetup "mkfs.$FS" mount awk od dd cmp; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes "$FS" overlay || : # may be there already, or built in

case $FS in
btrfs) make="-q -f -K" ;;
ext4) make="-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0" ;;
f2fs) make="-q -f -t 0" ;;
xfs) make="-q -f -K" ;;
*) fail "FS=$FS: btrfs, ext4, f2fs or xfs" ;;
esac

# --- a disk with a write cache, of dm-log-writes --------------------------------------------------

# The file system is on $DIR/disk; what is written to it is logged in $DIR/log.
disk_on() {
	cp --sparse=always "$DIR/base" "$DIR/disk"
	truncate -s 64M "$DIR/log"
	disk=$(losetup -f --show "$DIR/disk") log=$(losetup -f --show "$DIR/log")
	echo "0 $(blockdev --getsz "$disk") log-writes $disk $log" | dmsetup create "$NAME" ||
		fail "no dm-log-writes in this kernel"
	dmsetup mknodes "$NAME" # where there is no udev
}

mark() {
	dmsetup message "$NAME" 0 mark "$1"
}

disk_off() {
	dmsetup remove --retry "$NAME"
	losetup -d "$disk"
	losetup -d "$log"
}

# show MARK: print the log from the mark on; replay MARK FILE: apply to FILE all that is in front of it.
# Sectors are of 512 bytes. Sector 0: magic, version, number of entries. An entry is a sector with the place, the
# length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK) and the length of a mark's text, which follows; then the data.
walk() {
	at=1 shown=
	for n in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$DIR/log") - 1))); do
		set -- "$1" "$2" $(od -An -v -tu8 -j$((at * 512)) -N32 "$DIR/log")
		text=
		if [ $(($5 & 8)) != 0 ]; then
			text=$(dd if="$DIR/log" bs=1 skip=$((at * 512 + 32)) count="$6" 2>/dev/null | tr -d '\0')
		fi
		if [ "$text" = "$2" ]; then
			[ "$1" != show ] && return
			shown=1
		fi
		if [ "$1" = show ]; then
			kind=WRITE
			[ "$4" = 0 ] && kind=
			[ $(($5 & 1)) != 0 ] && kind="$kind FLUSH"
			[ $(($5 & 2)) != 0 ] && kind="$kind FUA"
			[ -n "$text" ] && kind="mark $text"
			[ -n "$shown" ] && echo "  $n: sector $3 + $4 $kind"
		elif [ $(($5 & 12)) = 0 ] && [ "$4" != 0 ]; then
			dd if="$DIR/log" of="$DIR/after" bs=512 skip=$((at + 1)) seek="$3" count="$4" conv=notrunc status=none
		fi
		at=$((at + 1))
		[ $(($5 & 4)) != 0 ] || at=$((at + $4))
	done
	[ "$1" = show ] || fail "the log has no mark $2"
}

# --- the workload ----------------------------------------------------------------------------

case $LAYER in
lower | upper) tree=$DIR/merged ;;
none) tree=$DIR/mnt/upper ;;
*) fail "LAYER=$LAYER: lower, upper or none" ;;
esac

overlay_on() {
	[ "$LAYER" = none ] ||
		mount -t overlay -o "lowerdir=$DIR/mnt/lower,upperdir=$DIR/mnt/upper,workdir=$DIR/mnt/work,uuid=off" \
			overlay "$DIR/merged" || fail "cannot mount overlayfs"
}

overlay_off() {
	[ "$LAYER" = none ] || umount "$DIR/merged"
}

mkdir "$DIR/mnt" "$DIR/merged"
truncate -s 320M "$DIR/base"
"mkfs.$FS" $make "$DIR/base" >/dev/null
disk_on
mount -t "$FS" "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount $FS"
mkdir "$DIR/mnt/lower" "$DIR/mnt/upper" "$DIR/mnt/work"
if [ "$LAYER" = lower ]; then
	mkdir "$DIR/mnt/lower/e"
	echo old >"$DIR/mnt/lower/f"
fi
overlay_on
if [ "$LAYER" != lower ]; then
	mkdir "$tree/e"
	echo old >"$tree/f"
fi
sync
mark before
mv "$tree/f" "$tree/e/f"
echo new >"$tree/f"
sync "$tree/f"
[ "$ALL" = 0 ] || sync
mark returned
# The power fails here. What follows in the log is of no account.
overlay_off
umount "$DIR/mnt"
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), $FS, LAYER=$LAYER. The log of writes, from the move on:"
walk show before | awk '{ print } /mark returned/ { exit }'
cp --sparse=always "$DIR/base" "$DIR/after"
walk replay returned
mount -t "$FS" -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed $FS cannot be mounted"
overlay_on
echo "Names: $(cd "$tree" && find . ! -name . | sort | tr '\n' ' ')"
if grep -qsx old "$tree/f" "$tree/e/f"; then
	echo "KEPT: the old file has a name"
else
	echo "BROKEN: fsync of the new f returned, and after a power cut the old file is neither e/f nor f"
fi
overlay_off
