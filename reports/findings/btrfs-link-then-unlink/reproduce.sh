#!/bin/sh
# btrfs: a file that sync(2) made durable gets a second name in another directory, and loses its first one. Then
# fsync(2) of the old directory, and a power cut: the file has neither name.
#
#   MOVE=link           link(2), then unlink(2): the default
#   MOVE=rename         control: rename(2)
#   FIRST=new           control: fsync of the new directory before the unlink
#   CALL=sync           control: sync(2) in place of the last fsync(2); CALL=none: nothing in its place
#   CALL=file           an fsync of another file of the old directory, then one of that directory
#   OPTIONS=notreelog   control: a mount option by which fsync commits a whole transaction
#   FS=ext4             control: the same on ext4; FS=xfs: on XFS
#
# Needs root, loop devices and btrfs-progs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
MOVE=${MOVE:-link} FIRST=${FIRST:-} CALL=${CALL:-fsync} FS=${FS:-btrfs}
[ "$FS" = btrfs ] && OPTIONS=${OPTIONS:-treelog} || OPTIONS=${OPTIONS:-defaults}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk sed "mkfs.$FS"; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
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

case $FS in
btrfs) make="-q -f -K" again= ;;
ext4) make="-q -F" again= ;;
xfs) make="-q -f" again=,nouuid ;;
*) fail "FS=$FS: btrfs, ext4 or xfs" ;;
esac

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
must truncate -s 400M "$dir/disk"
must "mkfs.$FS" $make "$dir/disk"
must mount -t "$FS" -o "loop,$OPTIONS" "$dir/disk" "$dir/mnt"
cd "$dir/mnt" || fail "no $dir/mnt"
must mkdir tmp new
echo text >tmp/m
must sync
case $MOVE in
link)
	must ln tmp/m new/m
	case $FIRST in
	new) must sync new ;; # sync(1) of a file or a directory is fsync(2)
	"") ;;
	*) fail "FIRST=$FIRST: new" ;;
	esac
	must rm tmp/m
	;;
rename) must mv tmp/m new/m ;;
*) fail "MOVE=$MOVE: link or rename" ;;
esac
case $CALL in
fsync) must sync tmp ;;
file)
	: >tmp/other
	must sync tmp/other
	must sync tmp
	;;
sync) must sync ;;
none) ;;
*) fail "CALL=$CALL: fsync, file, sync or none" ;;
esac
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
cd /
must umount "$dir/mnt"

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), $FS, $OPTIONS, MOVE=$MOVE FIRST=$FIRST CALL=$CALL."
if [ "$FS" = btrfs ]; then
	echo "the log tree that recovery will find:"
	btrfs inspect-internal dump-tree "$dir/after" 2>/dev/null |
		sed -n '/^log tree key/,/^total bytes/s/^[[:space:]]*item [0-9]* key (\([^)]*\)).*/  \1/p'
	btrfs device scan --forget >&2 # the same file system, seen on another device a moment ago
fi
must mount -t "$FS" -o "loop$again" "$dir/after" "$dir/mnt"
echo "after the power cut:"
(cd "$dir/mnt" && find tmp new -type f -exec sh -c 'echo "  $1: $(cat "$1")"' sh {} \;)
[ -d "$dir/mnt/tmp" ] && [ -d "$dir/mnt/new" ] || fail "a directory is gone"
for name in tmp/m new/m; do
	if [ "$(cat "$dir/mnt/$name" 2>/dev/null)" = text ]; then
		echo "KEPT: after the power cut, the file is there as $name"
		exit 0
	fi
done
echo "BROKEN: sync had returned for the file, and after the power cut it is neither tmp/m nor new/m"
