#!/bin/sh
# F2FS: the commit of an atomic write that changes blocks of several node blocks sends these without a flush in front of
# the last one, and without FUA: a disk may keep the nodes and lose the data.
#
#   NODES=3   the atomic write changes three blocks, 4 MiB from each other, of which three node blocks tell: the default
#   NODES=1   control: it changes one block
#
# Needs root, loop devices, dm-delay, dm-log-writes, perl and f2fs-tools. Prints BROKEN or KEPT; exits with 2 if it could
# not tell.
set -u
NODES=${NODES:-3}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd cmp awk perl mkfs.f2fs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-delay dm-log-writes f2fs || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	dmsetup remove --retry "$name-log" 2>/dev/null
	dmsetup remove --retry "$name-slow" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

# --- a disk with a volatile write cache ----------------------------------------------------------

# dm-log-writes logs a write when a flush that was sent after its completion has made it durable, a FUA write when it
# is complete: so the log up to a mark is what is on the disk for certain if the power fails then.
disk_on() {
	must cp --sparse=always "$dir/base" "$dir/disk"
	must truncate -s 256M "$dir/log"
	disk=$(losetup -f --show "$dir/disk") && log=$(losetup -f --show "$dir/log") || fail "no loop devices"
	sectors=$(blockdev --getsz "$disk")
	must dmsetup create "$name-slow" --table "0 $sectors delay $disk 0 0 $disk 0 0 $disk 0 0"
	must dmsetup create "$name-log" --table "0 $sectors log-writes /dev/mapper/$name-slow $log"
}

mark() {
	must dmsetup message "$name-log" 0 mark "$1"
}

disk_off() {
	must umount "$dir/mnt"
	must dmsetup remove --retry "$name-log"
	must dmsetup remove --retry "$name-slow"
	must losetup -d "$disk"
	must losetup -d "$log"
}

# lost_data FROM UNTIL: $dir/after becomes what the disk may hold just before the first FLUSH behind the data of the atomic
# write (4 KiB blocks of "N"), or when UNTIL was logged: all writes but that data, which no flush has covered. Prints the
# log from FROM on. The log is in sectors of 512 bytes (drivers/md/dm-log-writes.c). Sector 0: magic, version, number of
# entries. An entry is a sector with place, length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK), length of the mark's text,
# and that text; then, unless it is a discard, the data. Writes that were complete when a flush was sent stand before it.
lost_data() {
	from=$1 until=$2 at=1 shown= held=
	must cp --sparse=always "$dir/base" "$dir/after"
	for entry in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$dir/log") - 1))); do
		set -- $(od -An -v -tu8 -j$((at * 512)) -N32 "$dir/log")
		text= what=
		[ $(($3 & 1)) = 0 ] || what="$what FLUSH"
		[ $(($3 & 2)) = 0 ] || what="$what FUA"
		[ $(($3 & 4)) = 0 ] || what="$what DISCARD"
		if [ $(($3 & 8)) != 0 ]; then
			text=$(dd if="$dir/log" bs=1 skip=$((at * 512 + 32)) count="$4" status=none | tr -d '\0')
		fi
		[ "$text" != "$from" ] || shown=yes
		[ "$text" != "$until" ] || return 0
		if [ -n "$held" ] && [ $(($3 & 1)) != 0 ]; then
			echo "  $entry: sector $1, $2 sectors$what, just before which the power fails"
			return 0
		fi
		if [ $(($3 & 12)) = 0 ] && [ "$2" != 0 ]; then
			first=$(dd if="$dir/log" bs=1 skip=$(((at + 1) * 512)) count=8 status=none | tr -d '\0')
			if [ -n "$shown" ] && [ "$first" = NNNNNNNN ]; then
				held=yes what="$what, the data, which is lost"
			else
				must dd if="$dir/log" of="$dir/after" bs=512 skip=$((at + 1)) seek="$1" count="$2" conv=notrunc \
					status=none
			fi
		fi
		if [ -n "$text" ] && [ -n "$shown" ]; then
			echo "  $entry: mark \"$text\""
		elif [ -n "$shown" ]; then
			echo "  $entry: sector $1, $2 sectors$what"
		fi
		at=$((at + 1))
		[ $(($3 & 4)) != 0 ] || at=$((at + $2))
	done
	fail "the log has no mark $until"
}

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
must truncate -s 64M "$dir/base"
must mkfs.f2fs -q -f -t 0 "$dir/base"
disk_on
must mount -t f2fs "/dev/mapper/$name-log" "$dir/mnt"
for block in 0 1024 2048; do
	perl -e 'print "O" x 4096' | must dd of="$dir/mnt/f" bs=4096 seek=$block conv=notrunc status=none
done
must sync # a checkpoint
must dd if=/dev/zero of="$dir/mnt/other" bs=4096 count=1 conv=fsync status=none # or the next fsync has number 0
mark called
must perl -e '
	($file, $nodes) = @ARGV;
	open(F, "+<", $file) or die $!;
	ioctl(F, 0xf501, 0) or die "start: $!";
	for (0 .. $nodes - 1) {
		defined sysseek(F, $_ << 22, 0) or die $!;
		syswrite(F, "N" x 4096) == 4096 or die $!;
	}
	ioctl(F, 0xf502, 0) or die "commit: $!";
' "$dir/mnt/f" "$NODES"
mark committed
must dd if=/dev/zero of="$dir/mnt/other" bs=4096 count=2 conv=notrunc,fsync status=none # whose flush has all logged
mark end
disk_off

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), f2fs, NODES=$NODES. What was sent to the disk, from the first call on:"
lost_data called end
must mount -t f2fs -o loop "$dir/after" "$dir/mnt"
found=
for block in 0 1024 2048; do
	found="$found$(dd if="$dir/mnt/f" bs=4096 skip=$block count=1 status=none | tr '\0' 0 | cut -c1)."
done
old=O.O.O. new=N.N.N.
[ "$NODES" = 3 ] || new=N.O.O.
case $found in
"$old" | "$new") echo "KEPT: after the power cut, f holds all of the atomic write, or nothing of it ($found)" ;;
*) echo "BROKEN: after the power cut, blocks of f hold neither what they held nor what was written ($found)" ;;
esac
