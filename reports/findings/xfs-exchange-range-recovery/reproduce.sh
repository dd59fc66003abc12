#!/bin/sh
# XFS: two files of different sizes exchange their contents; recovery completes the exchange, and frees what the file
# that has become longer holds beyond its earlier size.
#
# XFS_EXCHANGE_RANGE_DSYNC forces the log with the first transaction of the exchange, which holds its intent alone. The
# disk is then copied as it is, which is what a power cut leaves of a disk that loses nothing at all, and the copy is
# mounted.
#
#   LONG=40000     bytes of the longer file, the default; LONG=4000 is a control: no more blocks than the shorter one
#   AFTER=         the default; AFTER=syncfs is a control: the whole exchange is in the log, and no intent is left
#
# Needs root, loop devices, xfsprogs and perl. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
LONG=${LONG:-40000} AFTER=${AFTER-}
SHORT=3000
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

for tool in mkfs.xfs xfs_db xfs_repair xfs_io losetup mount perl; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
case $AFTER in '' | syncfs) ;; *) fail "AFTER=$AFTER: syncfs or nothing" ;; esac
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop xfs || : # may be there already, or built in

# mkfs.xfs before 6.10 does not know the feature, but its bit, 6 of the incompatible ones, is all that there is to it.
make() {
	truncate -s 320M "$1"
	mkfs.xfs -q -f -K -i exchange=1 "$1" 2>/dev/null && return
	mkfs.xfs -q -f -K "$1"
	has=$(xfs_db -r -c 'sb 0' -c 'print features_incompat' "$1" | sed 's/.*= //')
	xfs_db -x -c 'sb 0' -c "write -d features_incompat $(printf '0x%x' $((has | 64)))" "$1" >/dev/null
}

# filled FILE BYTES LETTER
filled() {
	head -c "$2" /dev/zero | tr '\0' "$3" >"$1"
}

# XFS_IOC_EXCHANGE_RANGE with XFS_EXCHANGE_RANGE_TO_EOF and XFS_EXCHANGE_RANGE_DSYNC
exchange() {
	perl -e '
		open(my $one, "+<", $ARGV[0]) && open(my $other, "+<", $ARGV[1]) or die "open: $!\n";
		ioctl($other, 0x40285881, pack("lLQQQQ", fileno($one), 0, 0, 0, 0, 3)) or die "XFS_IOC_EXCHANGE_RANGE: $!\n"
	' "$1" "$2" || fail "this kernel does not exchange ranges"
}

mkdir "$DIR/mnt" "$DIR/after"
make "$DIR/disk"
mount -o loop "$DIR/disk" "$DIR/mnt" || fail "cannot mount XFS"
filled "$DIR/mnt/short" "$SHORT" s
filled "$DIR/mnt/long" "$LONG" l
cp "$DIR/mnt/short" "$DIR/mnt/long" "$DIR"
sync -f "$DIR/mnt"

exchange "$DIR/mnt/short" "$DIR/mnt/long"
[ "$AFTER" ] && sync -f "$DIR/mnt"
cp --sparse=always "$DIR/disk" "$DIR/crashed"
cmp -s "$DIR/mnt/short" "$DIR/long" || fail "the exchange did not exchange"

mount -o loop,nouuid "$DIR/crashed" "$DIR/after" || fail "the crashed file system cannot be mounted"
echo "Linux $(uname -r); after an exchange with DSYNC, ${AFTER:+$AFTER, }a power cut and recovery:"
for file in short long; do
	echo "  $file: $(stat -c '%s bytes, %b blocks of 512' "$DIR/after/$file"), $(tr -d '\0' <"$DIR/after/$file" | wc -c) of them not zeros"
done
verdict=KEPT
cmp "$DIR/after/short" "$DIR/long" >"$DIR/said" 2>&1 || verdict=BROKEN
cmp "$DIR/after/long" "$DIR/short" >>"$DIR/said" 2>&1 || verdict=BROKEN
sed "s|$DIR/||g" "$DIR/said"
umount "$DIR/after"
umount "$DIR/mnt"
case $verdict in
KEPT) echo "KEPT: each file has the contents of the other one" ;;
BROKEN) echo "BROKEN: the files have not each other's contents, although the exchange returned" ;;
esac
