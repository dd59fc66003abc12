#!/bin/sh
# bindfs and mergerfs have no FSYNCDIR, and Linux takes that for done: fsync(2) of a directory returns 0, and nothing was
# written. What was renamed and synced has its old name after a power cut.
#
# A file is written through the daemon, everything is synced, and the file is renamed; the directory is synced. Then the
# disk is copied, as it is: all that was ever written to it is in the copy, and nothing was lost in a cache.
#
#   DAEMON=bindfs  mergerfs; or gocryptfs (control), which passes FSYNCDIR on
#   FS=ext4        the file system below: ext4, xfs or btrfs
#   ON=above       or below (control): whether this is done through the daemon, or on the file system below itself
#
# Needs root, loop devices and FUSE. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
DAEMON=${DAEMON:-bindfs} FS=${FS:-ext4} ON=${ON:-above}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

stop() {
	umount "$DIR/above" 2>/dev/null || :
	while pidof "$DAEMON" >/dev/null; do sleep 0.1; done
	umount "$DIR/below" 2>/dev/null || :
}

clean() {
	stop
	rm -rf "$DIR"
}

# DISK: mounts it, and has the daemon pass it on.
start() {
	mount -o loop "$1" "$DIR/below" || fail "cannot mount $FS"
	mkdir -p "$DIR/below/tree"
	case $DAEMON in
	bindfs) bindfs "$DIR/below/tree" "$DIR/above" ;;
	mergerfs) mergerfs -o minfreespace=0 "$DIR/below/tree" "$DIR/above" ;;
	gocryptfs)
		key=$(printf %064d 0)
		gocryptfs -q -nosyslog -deterministic-names -masterkey "$key" "$DIR/below/tree" "$DIR/above" >/dev/null 2>&1
		;;
	*) fail "DAEMON=$DAEMON: bindfs, mergerfs or gocryptfs" ;;
	esac || fail "$DAEMON does not start"
}

case $FS in
ext4 | btrfs | xfs) mkfs="mkfs.$FS -q" ;;
*) fail "FS=$FS: ext4, xfs or btrfs" ;;
esac
for tool in "$DAEMON" "${mkfs%% *}" mount pidof; do
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

case $ON in
above) there=$DIR/above ;;
below) there=$DIR/below/tree ;;
*) fail "ON=$ON: above or below" ;;
esac
echo data >"$there/old"
sync # of everything: the file is durable
mv "$there/old" "$there/new"
sync "$there" || fail "fsync of the directory fails" # which nobody would take for done
cp --sparse=always "$DIR/disk" "$DIR/after" # the power fails here
stop

start "$DIR/after"
names=$(cd "$there" && echo *)
echo "Linux $(uname -r), $("$DAEMON" --version 2>&1 | head -n 1). After the power cut: $names"
case $names in
old) echo "BROKEN: rename and fsync of the directory returned, and after a power cut the rename is undone" ;;
new) echo "KEPT: rename and fsync of the directory returned, and after a power cut the file has its new name" ;;
*) fail "neither name is there" ;;
esac
