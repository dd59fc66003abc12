#!/bin/sh
# gocryptfs keeps in each directory a file with which the names there are encrypted, gocryptfs.diriv, and does not sync it.
# After a power cut it may be empty: then all in a new directory is unreadable, also files that were synced.
#
# A directory and a file in it are made; file and directory are synced. Then the disk is copied, as it is: all that was
# ever written to it is in the copy, and nothing was lost in a cache.
#
#   NAMES=random         or deterministic (control): -deterministic-names, without such files
#   SYNC=file            or also iv (control): gocryptfs.diriv is synced, too
#   FS=ext4              the file system below: ext4, xfs or btrfs
#
# Needs root, loop devices, FUSE and gocryptfs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
NAMES=${NAMES:-random} SYNC=${SYNC:-file} FS=${FS:-ext4}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

stop() {
	umount "$DIR/above" 2>/dev/null || :
	while pidof gocryptfs >/dev/null; do sleep 0.1; done
	umount "$DIR/below" 2>/dev/null || :
}

clean() {
	stop
	rm -rf "$DIR"
}

# DISK: mounts it, and what is encrypted there.
start() {
	mount -o loop "$1" "$DIR/below" || fail "cannot mount $FS"
	[ -e "$DIR/below/cipher" ] || {
		mkdir "$DIR/below/cipher"
		# shellcheck disable=SC2086  # no word or one
		gocryptfs -q -init -scryptn 10 $option -extpass echo -extpass word "$DIR/below/cipher"
	}
	gocryptfs -q -nosyslog -extpass echo -extpass word "$DIR/below/cipher" "$DIR/above" >/dev/null 2>&1 ||
		fail "gocryptfs does not start"
}

case $FS in
ext4 | btrfs | xfs) mkfs="mkfs.$FS -q" ;;
*) fail "FS=$FS: ext4, xfs or btrfs" ;;
esac
case $NAMES in
random) option= ;;
deterministic) option=-deterministic-names ;;
*) fail "NAMES=$NAMES: random or deterministic" ;;
esac
for tool in gocryptfs "${mkfs%% *}" mount pidof; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop fuse "$FS" || : # may be there already, or built in

mkdir "$DIR/below" "$DIR/above"
truncate -s 320M "$DIR/disk"
$mkfs "$DIR/disk" || fail "$mkfs failed"
start "$DIR/disk"
sync # of everything

mkdir "$DIR/above/d"
echo data >"$DIR/above/d/f"
[ "$SYNC" != iv ] || sync "$DIR"/below/cipher/*/gocryptfs.diriv
sync "$DIR/above/d/f" "$DIR/above/d" "$DIR/above" || fail "fsync fails"
cp --sparse=always "$DIR/disk" "$DIR/after" # the power fails here
stop

start "$DIR/after"
echo "Linux $(uname -r), $FS, $(gocryptfs --version 2>&1 | head -n 1). After the power cut:"
wc -c "$DIR"/below/cipher/*/gocryptfs.diriv 2>/dev/null | sed "s:$DIR/::" || :
if [ "$(cat "$DIR/above/d/f" 2>&1)" = data ]; then
	echo "KEPT: fsync of a file, its directory and the one above returned, and after a power cut the file is there"
else
	ls -l "$DIR/above/d" 2>&1 | sed "s:$DIR/::" || :
	echo "BROKEN: fsync of a file, its directory and the one above returned, and after a power cut it cannot be read"
fi
