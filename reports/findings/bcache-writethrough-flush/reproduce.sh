#!/bin/sh
# bcache, writethrough: a write with a flush ahead of it reaches the disk before the journal of the cache has what came
# ahead of the flush. So the commit record of ext4's journal can be on the disk while the cache still gives old data.
#
# No device has a volatile cache: at the power cut both are copied as they are. Writes of the cache take four seconds
# (dm-delay) once everything is prepared. `old` is synced, and removed; f is the only place for its blocks. Power fails
# while fsync of f waits for the cache, and the disk has all of it.
#
#   CUT=early       the default: fsync has not returned
#   CUT=late        control: fsync has returned
#   CACHE=no        control: the disk alone is looked at after the cut
#
# Needs root, loop devices, dm-delay, bcache, bcache-tools and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it
# could not tell.
set -u
CUT=${CUT:-early} CACHE=${CACHE:-yes} DELAY_MS=4000

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in make-bcache dmsetup losetup blockdev dd cmp awk mke2fs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-delay bcache ext4 || : # may be loaded already, or built in
[ -e /sys/fs/bcache/register ] || fail "needs bcache"
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$
dir=$(mktemp -d) || fail "no temporary directory"
stop() { # every bcache, and the devices below
	for one in /sys/block/bcache*/bcache/stop /sys/fs/bcache/*-*-*-*-*/stop; do
		[ ! -e "$one" ] || echo 1 >"$one" 2>/dev/null
	done
	for _ in $(seq 100); do
		ls -d /sys/fs/bcache/*-*-*-*-* /sys/block/bcache* >/dev/null 2>&1 || break
		sleep 0.2
	done
	dmsetup remove --retry "$name" 2>/dev/null
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
}
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	stop
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

loop() { # the loop device of a file
	losetup -f --show "$dir/$1" || fail "no loop device"
}

assemble() { # register both; $bcache is the device
	for one; do
		echo "$one" >/sys/fs/bcache/register || fail "$one cannot be registered: $(dmesg | grep -i bcache | tail -n 4 | tr "\n" " ")"
	done
	for _ in $(seq 100); do
		bcache=$(ls -d /sys/block/bcache*/bcache/cache 2>/dev/null | cut -d/ -f4)
		[ -z "$bcache" ] || break
		sleep 0.2
	done
	[ -n "$bcache" ] || fail "bcache did not come up"
	for _ in $(seq 50); do
		[ ! -b "/dev/$bcache" ] || break
		sleep 0.2
	done
}

written_by() { # a file of so many MiB of one letter
	tr '\0' "$2" </dev/zero | dd of="$dir/mnt/$1" bs=1M count="$3" iflag=fullblock status=none || fail "no space for $1"
}

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
must truncate -s 64M "$dir/disk"
must truncate -s 256M "$dir/cache"
disk=$(loop disk) cache=$(loop cache)
size=$(blockdev --getsz "$cache")
must dmsetup create "$name" --table "0 $size delay $cache 0 0 $cache 0 0"
must make-bcache --wipe-bcache --writethrough --bucket 64k -C "/dev/mapper/$name" -B "$disk"
assemble "$(readlink -f "/dev/mapper/$name")" "$disk"
echo writethrough >"/sys/block/$bcache/bcache/cache_mode"
echo 0 >"/sys/block/$bcache/bcache/sequential_cutoff"
for set in /sys/fs/bcache/*-*-*-*-*; do
	echo 0 >"$set/congested_read_threshold_us" # a slow cache is passed by otherwise
	echo 0 >"$set/congested_write_threshold_us"
done
must mke2fs -q -F -t ext4 -b 4096 -m 0 -J size=8 -E nodiscard,lazy_journal_init=1,lazy_itable_init=1 "/dev/$bcache"
must mount -t ext4 -o noinit_itable "/dev/$bcache" "$dir/mnt"
written_by old o 16
sync
dd if=/dev/zero of="$dir/mnt/filler" bs=1M status=none 2>/dev/null # all other blocks
sync
must rm "$dir/mnt/old"
sync
for set in /sys/fs/bcache/*-*-*-*-*; do
	echo 60000 >"$set/journal_delay_ms" # the journal of the cache is written where a flush asks for it
done
sleep 2
must dmsetup suspend "$name"
must dmsetup load "$name" --table "0 $size delay $cache 0 0 $cache 0 $DELAY_MS"
must dmsetup resume "$name"
written_by f n 8
sync "$dir/mnt/f" &
if [ "$CUT" = late ]; then
	wait $!
	echo "fsync has returned"
else
	sleep 11 # data 4 s, blocks of the journal 4 s; its commit record is on the disk, and waits for the cache for 8 s
	kill -0 $! 2>/dev/null || fail "fsync has returned already"
fi
must cp --sparse=always "$dir/disk" "$dir/disk-after"
must cp --sparse=always "$dir/cache" "$dir/cache-after"
wait
must dmsetup suspend "$name"
must dmsetup load "$name" --table "0 $size delay $cache 0 0 $cache 0 0"
must dmsetup resume "$name"
must umount "$dir/mnt"
stop

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), ext4 on bcache, CUT=$CUT, CACHE=$CACHE"
disk=$(loop disk-after)
if [ "$CACHE" = yes ]; then
	cache=$(loop cache-after)
	assemble "$cache" "$disk"
	must mount -t ext4 "/dev/$bcache" "$dir/mnt"
else
	losetup -d "$disk"
	disk=$(losetup -f --show -o 8192 "$dir/disk-after") || fail "no loop device" # behind the superblock of bcache
	must mount -t ext4 "$disk" "$dir/mnt"
fi
[ -e "$dir/mnt/f" ] || fail "f is not there: its commit was not on the disk"
size=$(wc -c <"$dir/mnt/f")
others=$(tr -d n <"$dir/mnt/f" | wc -c)
old=$(tr -dc o <"$dir/mnt/f" | wc -c)
echo "f has $size bytes, of which $others are not its own, $old of these are from old"
if [ "$others" = 0 ]; then
	echo "KEPT: after the power cut, f has $size bytes, all of them what was written to it"
else
	echo "BROKEN: after the power cut, f is there, and holds what was written to old"
fi
