#!/bin/sh
# btrfs: fsync of a directory logs a name that a rename has taken away. Once the file under that name was replaced, too,
# and the directory synced again, a power cut brings the name back, with the file that was replaced.
#
#   FILES=700           so many other new names are made meanwhile: the default
#   FILES=10            control: so few that the kernel does not write the directories' new names into its tree
#   CALL=sync           control: sync(2) in place of the last fsync(2)
#   OPTIONS=notreelog   control: a mount option by which fsync commits a whole transaction
#
# Needs root, loop devices and btrfs-progs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
FILES=${FILES:-700} CALL=${CALL:-fsync} OPTIONS=${OPTIONS:-treelog}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in losetup awk sed mkfs.btrfs btrfs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop btrfs || : # may be loaded already, or built in

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

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
must truncate -s 128M "$dir/disk"
must mkfs.btrfs -q -f -K "$dir/disk"
must mount -t btrfs -o "loop,$OPTIONS" "$dir/disk" "$dir/mnt"
cd "$dir/mnt" || fail "no $dir/mnt"
must mkdir d x
echo old >d/file
must sync
echo first >d/temporary
for number in $(seq "$FILES"); do
	: >"x/$number"
done
must mv d/temporary d/file
must sync d/file # sync(1) of a file or a directory is fsync(2)
must sync d
echo second >d/temporary
must sync d/temporary
must mv d/temporary d/file
must sync d/file
case $CALL in
fsync) must sync d ;;
sync) must sync ;;
*) fail "CALL=$CALL: fsync or sync" ;;
esac
# The power fails here. fsync has flushed the disk's cache, and nothing was written since: this is what it holds.
must cp --sparse=always "$dir/disk" "$dir/after"
cd /
must umount "$dir/mnt"

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), btrfs, $OPTIONS, FILES=$FILES CALL=$CALL. The names that the log has of d:"
btrfs inspect-internal dump-tree "$dir/after" 2>/dev/null | awk '
	/^log tree key/ { log_tree = 1 }
	log_tree && /item [0-9]+ key/ { index_item = $5 == "DIR_INDEX" || $5 == "DIR_INDEX)" }
	log_tree && index_item && /location key|name: (file|temporary)/ { print "  " $0 }'
btrfs device scan --forget >&2 # the same file system, seen on another device a moment ago
must mount -t btrfs -o loop "$dir/after" "$dir/mnt"
echo "after the power cut:"
(cd "$dir/mnt/d" && for file in *; do echo "  d/$file: $(cat "$file")"; done)
if [ "$(cat "$dir/mnt/d/file" 2>/dev/null)" != second ]; then
	echo "BROKEN: d/file was synced, and is not as it was"
elif [ -e "$dir/mnt/d/temporary" ]; then
	echo "BROKEN: d was synced without d/temporary, which is there again: $(cat "$dir/mnt/d/temporary")"
else
	echo "KEPT: after the power cut, d is as it was synced"
fi
