#!/bin/sh
# XFS: two files exchange their contents, the power fails, and it fails once more in the middle of the recovery that
# goes on with the exchange. The recovery after that takes the sizes that it sets at its end from the inodes, where they
# are those of the exchange's middle. Mended by "xfs: actually recover intended file sizes in
# xfs_xmi_item_recover_intent".
#
# XFS_EXCHANGE_RANGE_DSYNC forces the log with the first transaction of the exchange, which holds its intent alone. The
# disk is then copied, which is what a power cut leaves of a disk that loses nothing. The copy is mounted while loops
# keep the processor busy, so that XFS's log worker, which runs every second here, writes a part of the chain of
# transactions to the log. The disk is then taken away (dm-error), and mounted once more.
#
#   CUT=yes   the default; CUT=no is a control: nobody cuts recovery
#
# Needs root, loop devices, device-mapper, xfsprogs and perl. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CUT=${CUT-yes}
SHORT=4096 LONG=30720000 EXTENTS=3000
DIR=$(mktemp -d)
NAME=exchanged

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	umount "$DIR/after" 2>/dev/null || :
	dmsetup remove --retry "$NAME" 2>/dev/null || :
	[ -z "${LOOP-}" ] || losetup -d "$LOOP" 2>/dev/null || :
	rm -rf "$DIR"
}

for tool in mkfs.xfs xfs_db losetup dmsetup blockdev mount perl timeout; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
case $CUT in yes | no) ;; *) fail "CUT=$CUT: yes or no" ;; esac
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -S /run/udev/control ] || export DM_DISABLE_UDEV=1
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop xfs dm-mod || : # may be there already, or built in

# mkfs.xfs before 6.10 does not know the feature, but its bit, 6 of the incompatible ones, is all that there is to it.
make() {
	truncate -s 320M "$1"
	mkfs.xfs -q -f -K -i exchange=1 "$1" 2>/dev/null && return
	mkfs.xfs -q -f -K "$1"
	has=$(xfs_db -r -c 'sb 0' -c 'print features_incompat' "$1" | sed 's/.*= //')
	xfs_db -x -c 'sb 0' -c "write -d features_incompat $(printf '0x%x' $((has | 64)))" "$1" >/dev/null
}

# allocated FILE BYTES HOLES: fallocate(2) of all of it, and of every other place a hole (FALLOC_FL_PUNCH_HOLE)
allocated() {
	perl -e '
		my ($name, $bytes, $holes) = @ARGV;
		open(my $file, "+>", $name) or die "open: $!\n";
		my $fd = fileno($file);
		syscall(285, $fd, 0, 0, $bytes + 0) == 0 or die "fallocate: $!\n";
		for my $n (0 .. $holes - 1) {
			syscall(285, $fd, 3, $n * 10240, 8192) == 0 or die "punch: $!\n";
		}
	' "$@" || fail "cannot allocate $1"
}

# XFS_IOC_EXCHANGE_RANGE with XFS_EXCHANGE_RANGE_TO_EOF and XFS_EXCHANGE_RANGE_DSYNC
exchange() {
	perl -e '
		open(my $one, "+<", $ARGV[0]) && open(my $other, "+<", $ARGV[1]) or die "open: $!\n";
		ioctl($other, 0x40285881, pack("lLQQQQ", fileno($one), 0, 0, 0, 0, 3)) or die "XFS_IOC_EXCHANGE_RANGE: $!\n"
	' "$1" "$2" || fail "this kernel does not exchange ranges"
}

# sectors written so far, into WRITTEN
written() {
	read -r _ _ _ _ _ _ WRITTEN _ <"$STAT"
}

# Mounts the copy, and takes the disk away as soon as a part of what recovery does is in the log. First it writes what
# lies ahead of the log's head, 4,096 sectors, and inodes; then nothing until the log worker runs.
cut_recovery() {
	size=$(blockdev --getsz "$LOOP")
	dmsetup create "$NAME" --table "0 $size linear $LOOP 0"
	echo 100 >/proc/sys/fs/xfs/xfssyncd_centisecs
	spin='until [ -e "$0" ]; do n=0; while [ $n -lt 200 ]; do n=$((n + 1)); done; done'
	for loop in 1 2 3; do
		timeout 20 sh -c "$spin" "$DIR/over" &
	done
	STAT=/sys/dev/block/$(dmsetup info -c --noheadings --separator : -o major,minor "$NAME")/stat
	mount -o nouuid "/dev/mapper/$NAME" "$DIR/after" &
	mounting=$!
	written
	while [ "$WRITTEN" -le 4200 ]; do
		kill -0 "$mounting" 2>/dev/null || fail "the mount ended after $WRITTEN sectors"
		written
	done
	sleep 0.1 # for the rest of that part, a few records
	dmsetup suspend --nolockfs --noflush "$NAME"
	written
	echo "  recovery cut after $WRITTEN sectors"
	dmsetup load "$NAME" --table "0 $size error"
	dmsetup resume "$NAME"
	: >"$DIR/over"
	if wait "$mounting"; then
		umount "$DIR/after"
	fi
	wait
	dmsetup remove --retry "$NAME"
}

mkdir "$DIR/mnt" "$DIR/after"
make "$DIR/disk"
mount -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount XFS"
allocated "$DIR/mnt/short" "$SHORT" 0
allocated "$DIR/mnt/long" "$LONG" "$EXTENTS"
umount "$DIR/mnt"
mount -o loop "$DIR/disk" "$DIR/mnt"
exchange "$DIR/mnt/short" "$DIR/mnt/long"
cp --sparse=always "$DIR/disk" "$DIR/crashed"
umount "$DIR/mnt"

echo "Linux $(uname -r); after an exchange with DSYNC, a power cut, $([ $CUT = no ] || echo "a second one in the middle of recovery, ")and recovery:"
LOOP=$(losetup -f --show "$DIR/crashed")
[ "$CUT" = no ] || cut_recovery
mount -o nouuid "$LOOP" "$DIR/after" || fail "the crashed file system cannot be mounted"
is="$(stat -c %s "$DIR/after/short") and $(stat -c %s "$DIR/after/long")"
umount "$DIR/after"
echo "  short and long had $SHORT and $LONG bytes, now $is"
case $is in
"$LONG and $SHORT") echo "KEPT: each file has the size of the other one" ;;
*) echo "BROKEN: the files have not each other's sizes, although the exchange returned" ;;
esac
