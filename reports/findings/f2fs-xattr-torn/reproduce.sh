#!/bin/sh
# F2FS: if the power fails during fsync of a file whose attributes take more than their place in the inode, an attribute
# that was synced before, and that nobody has changed since, can come back with another value.
#
#   CHANGE=replace  user.small gets a longer value, and user.big stays as it is, the default
#   CHANGE=add      user.big is new
#   LOST=node       what the disk's cache loses: the node with the rest of the attributes, the default
#   LOST=none       control: nothing is lost
#   LOST=inode      control: the inode is lost, and that node is not
#   BIG=1500        bytes of user.big; BIG=20: control, all attributes have room in the inode
#   OPTIONS=...     mount options; fsync_mode=posix is F2FS's default
#
# Needs root, loop devices, dm-log-writes, f2fs-tools, setfattr and getfattr. Prints BROKEN or KEPT; exits with 2 if it
# could not tell.
set -u
CHANGE=${CHANGE:-replace} LOST=${LOST:-node} BIG=${BIG:-1500} OPTIONS=${OPTIONS:-fsync_mode=posix}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd cmp awk tr mkfs.f2fs setfattr getfattr; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-log-writes f2fs || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	dmsetup remove --retry "$name" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

# --- a disk whose writes are logged --------------------------------------------------------------

disk_on() {
	must cp "$dir/base" "$dir/disk"
	must truncate -s 256M "$dir/log"
	disk=$(losetup -f --show "$dir/disk") && log=$(losetup -f --show "$dir/log") || fail "no loop devices"
	must dmsetup create "$name" --table "0 $(blockdev --getsz "$disk") log-writes $disk $log"
}

disk_off() {
	must umount "$dir/mnt"
	must dmsetup remove --retry "$name"
	must losetup -d "$disk"
	must losetup -d "$log"
}

# power_cut MARK: $dir/after becomes what the disk may hold if the power fails after MARK, before the next flush.
# What was logged up to MARK is on it. Of the blocks that were written from there to the first FLUSH, the disk's cache
# has lost those that LOST names, and written all others. That is for the disk to choose: only a flush orders them, and
# a write with FLUSH or FUA begins what comes later. So both of these end the replay.
# The log is in sectors of 512 bytes (drivers/md/dm-log-writes.c). Sector 0: magic, version, number of entries. An
# entry is a sector with place, length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK), length of the mark's text, and
# that text; then, unless it is a discard, the data.
power_cut() {
	wanted_mark=$1 at=1 reached='' seen=0
	must cp "$dir/base" "$dir/after"
	for entry in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$dir/log") - 1))); do
		set -- $(od -An -v -tu8 -j$((at * 512)) -N32 "$dir/log")
		data=$((at + 1))
		at=$data
		[ $(($3 & 4)) != 0 ] || at=$((at + $2))
		if [ $(($3 & 8)) != 0 ]; then
			text=$(dd if="$dir/log" bs=1 skip=$(((data - 1) * 512 + 32)) count="$4" status=none | tr -d '\0')
			[ -n "$reached" ] && echo "  $entry: mark \"$text\""
			[ "$text" != "$wanted_mark" ] || reached=yes
			continue
		fi
		if [ -n "$reached" ] && [ $(($3 & 3)) != 0 ]; then
			echo "  $entry: sector $1, $2 sectors, FLUSH or FUA: the power has failed before it"
			[ $seen != 0 ] || fail "the inode was not written before it"
			return 0
		fi
		[ $(($3 & 4)) = 0 ] && [ "$2" != 0 ] || continue
		if [ -z "$reached" ]; then
			must dd if="$dir/log" of="$dir/after" bs=512 skip="$data" seek="$1" count="$2" conv=notrunc status=none
			continue
		fi
		place=$1 sectors=$2
		for block in $(seq 0 8 $((sectors - 1))); do
			# struct node_footer, the last 24 bytes of a node: its number, that of its inode, flags. These have in
			# front of 3 bits its place in the file, which has 29 bits set for the node with attributes.
			set -- $(od -An -v -tu4 -j$(((data + block) * 512 + 4072)) -N12 "$dir/log")
			what=other
			if [ "$2" = "$inode" ]; then
				[ "$1" != "$2" ] || what=inode
				[ $(($3 >> 3)) != 536870911 ] || what=node
			fi
			[ $what != inode ] || seen=1
			if [ $what = "$LOST" ]; then
				echo "  $entry: sector $((place + block)), 8 sectors: $what, lost"
				continue
			fi
			echo "  $entry: sector $((place + block)), 8 sectors: $what, on the disk"
			must dd if="$dir/log" of="$dir/after" bs=512 skip=$((data + block)) seek=$((place + block)) count=8 \
				conv=notrunc status=none
		done
	done
	fail "the log has no flush after the mark $wanted_mark"
}

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
must truncate -s 64M "$dir/base"
must mkfs.f2fs -q -f -t 0 "$dir/base"
big=$(seq 1000 2000 | tr -d '\n' | head -c "$BIG")
small=$(seq 100 199 | tr -d '\n' | head -c 60)
disk_on
must mount -t f2fs -o "$OPTIONS" "/dev/mapper/$name" "$dir/mnt"
: >"$dir/mnt/f"
inode=$(ls -i "$dir/mnt/f" | awk '{ print $1 }')
must setfattr -n user.small -v "$small" "$dir/mnt/f"
[ "$CHANGE" = add ] || must setfattr -n user.big -v "$big" "$dir/mnt/f"
must sync "$dir/mnt/f"
must sync -f "$dir/mnt"
# The first fsync after a checkpoint has a bug of its own on F2FS: see f2fs-fsync-first-node.
must dd if=/dev/zero of="$dir/mnt/other" bs=4096 count=1 conv=fsync status=none
must dmsetup message "$name" 0 mark changing
case $CHANGE in
replace) must setfattr -n user.small -v "$small+" "$dir/mnt/f" ;;
add) must setfattr -n user.big -v "$big" "$dir/mnt/f" ;;
*) fail "CHANGE=$CHANGE: replace or add" ;;
esac
must sync "$dir/mnt/f"
must dmsetup message "$name" 0 mark fsync-returned
disk_off

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), f2fs, $OPTIONS, CHANGE=$CHANGE LOST=$LOST BIG=$BIG. The power fails during fsync:"
power_cut changing
dmesg -C 2>/dev/null || :
must mount -t f2fs -o loop "$dir/after" "$dir/mnt"
[ -e "$dir/mnt/f" ] || fail "there is no f"
getfattr --absolute-names "$dir/mnt/f" >"$dir/names" 2>"$dir/said" || :
has() { # the value of an attribute
	getfattr --absolute-names -n "user.$1" --only-values "$dir/mnt/f" 2>/dev/null
}
is=$(has big) || is=none
small_is=$(has small) || small_is=none
echo "The names of its attributes: $(grep user. "$dir/names" | tr '\n' ' ')$(cat "$dir/said")"
echo "user.small: $small_is"
echo "user.big has $(printf %s "$is" | wc -c) bytes: $(printf %s "$is" | head -c 240)..."
dmesg | awk '/xattr|recover/ { print "  " $0 }'
if [ "$CHANGE" = replace ] && [ "$is" != "$big" ]; then
	echo "BROKEN: user.big was synced before and nobody has changed it, and after the power cut it has another value"
elif [ -s "$dir/said" ]; then
	echo "BROKEN: after the power cut, the names of the attributes of f cannot be read"
elif [ "$is" = "$big" ] || [ "$is" = none ]; then
	echo "KEPT: after the power cut, user.big has the value that it had, or was to get"
else
	echo "BROKEN: after the power cut, user.big has a value that nobody gave it"
fi
