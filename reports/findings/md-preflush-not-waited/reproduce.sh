#!/bin/sh
# md RAID: a write with a flush ahead of it (REQ_PREFLUSH) is sent before the members have flushed their caches. So the
# commit record of ext4's journal can be on the platter without the data that it was to come after.
#
# RAID 10 of four members, each with a volatile cache of its own, of dm-log-writes: its log up to the power cut is what is
# on that platter for certain. Of members 0 and 1, which hold the file, a flush takes ten seconds (dm-delay), as that of
# a full cache may; members 2 and 3, which hold the journal, flush at once. Power fails three seconds after fsync was
# called, which has not returned.
#
#   FLUSH_MS=10000   the default
#   FLUSH_MS=0       control: no member is slow
#   LEVEL=10         the default
#   LEVEL=0          RAID 0: member 0 holds the file and is slow, member 1 holds the journal
#
# Needs root, loop devices, dm-log-writes, dm-delay, raid10 or raid0, mdadm and e2fsprogs. Prints BROKEN or KEPT; exits with 2 if it
# could not tell.
set -u
FLUSH_MS=${FLUSH_MS:-10000}
LEVEL=${LEVEL:-10}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

case $LEVEL in
10) layout="--layout=n2 --assume-clean --bitmap=none" slow_members="0 1" ;;
0) layout= slow_members=0 ;;
*) fail "LEVEL is $LEVEL, which is neither 0 nor 10" ;;
esac
[ "$(id -u)" = 0 ] || fail "needs root"
for tool in mdadm dmsetup losetup blockdev od dd cmp awk mke2fs; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-log-writes dm-delay raid$LEVEL ext4 || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$ array=/dev/md97
[ ! -e /sys/block/md97 ] || fail "$array is in use"
dir=$(mktemp -d) || fail "no temporary directory"
mkdir -p /run/mdadm
clean_up() {
	umount "$dir/mnt" 2>/dev/null
	mdadm --stop --quiet "$array" 2>/dev/null
	for n in 0 1 2 3; do
		dmsetup remove --retry "$name-log-$n" 2>/dev/null
		dmsetup remove --retry "$name-slow-$n" 2>/dev/null
	done
	for device in $(losetup -n -O NAME,BACK-FILE | awk -v d="$dir/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$device"
	done
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 2' HUP INT TERM

loop() { # the loop device of a file
	losetup -f --show "$dir/$1" || fail "no loop device"
}

mark() { # in the log of each member
	for n in 0 1 2 3; do
		must dmsetup message "$name-log-$n" 0 mark "$1"
	done
}

assemble() { # the array of these members; its clean state is not written while this runs
	must mdadm --assemble --run --quiet "$array" "$@"
	echo 600 >/sys/block/md97/md/safe_mode_delay || fail "no safe_mode_delay"
}

mount_it() {
	must mount -t ext4 -o commit=3600 "$array" "$dir/mnt"
}

# power_cut MEMBER FROM UNTIL: after-MEMBER becomes what the disk held when UNTIL was logged; prints the log from FROM on.
# The log is in sectors of 512 bytes (drivers/md/dm-log-writes.c). Sector 0: magic, version, number of entries. An
# entry is a sector with place, length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK), length of the mark's text, and
# that text; then, unless it is a discard, the data.
power_cut() {
	member=$1 from=$2 until=$3 at=1 shown= later=0
	must cp --sparse=always "$dir/base-$member" "$dir/after-$member"
	echo "member $member:"
	for entry in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$dir/log-$member") - 1))); do
		set -- $(od -An -v -tu8 -j$((at * 512)) -N32 "$dir/log-$member")
		text= what=
		[ $(($3 & 1)) = 0 ] || what="$what FLUSH"
		[ $(($3 & 2)) = 0 ] || what="$what FUA"
		[ $(($3 & 4)) = 0 ] || what="$what DISCARD"
		if [ $(($3 & 8)) != 0 ]; then
			text=$(dd if="$dir/log-$member" bs=1 skip=$((at * 512 + 32)) count="$4" status=none | tr -d '\0')
		fi
		[ "$text" != "$from" ] || shown=yes
		if [ -n "$shown" ]; then
			if [ -n "$text" ]; then
				echo "  $entry: mark \"$text\""
			else
				echo "  $entry: sector $1, $2 sectors$what"
			fi
		fi
		if [ $later = 0 ] && [ $(($3 & 12)) = 0 ] && [ "$2" != 0 ]; then
			must dd if="$dir/log-$member" of="$dir/after-$member" bs=512 skip=$((at + 1)) seek="$1" count="$2" \
				conv=notrunc status=none
		fi
		# What came later is shown a little, but not replayed.
		if [ $later != 0 ] || [ "$text" = "$until" ]; then
			later=$((later + 1))
			[ $later -le 4 ] || return 0
		fi
		at=$((at + 1))
		[ $(($3 & 4)) != 0 ] || at=$((at + $2))
	done
	[ $later != 0 ] || fail "the log of member $member has no mark $until"
}

# --- what is done --------------------------------------------------------------------------------

mkdir "$dir/mnt"
for n in 0 1 2 3; do
	yes stale | head -c 33554432 >"$dir/base-$n" || fail "no space"
	must truncate -s 96M "$dir/log-$n"
done
must dd if=/dev/urandom of="$dir/new" bs=4096 count=1 status=none

# Chunks of 8 MiB: the first is on the slow members, the second, with the journal, on others. f is there before, and
# empty.
members="$(loop base-0) $(loop base-1) $(loop base-2) $(loop base-3)"
must mdadm --create "$array" --run --force --quiet --metadata=1.2 --data-offset=1M --level="$LEVEL" $layout \
	--chunk=8M --raid-devices=4 $members
must mke2fs -q -F -t ext4 -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 -J size=4,location=10M "$array"
mount_it
: >"$dir/mnt/f"
must umount "$dir/mnt"
must mdadm --stop --quiet "$array"
for device in $members; do
	must losetup -d "$device"
done

cached=
for n in 0 1 2 3; do
	must cp --sparse=always "$dir/base-$n" "$dir/disk-$n"
	disk=$(loop "disk-$n") log=$(loop "log-$n")
	flush_ms=0
	case " $slow_members " in *" $n "*) flush_ms=$FLUSH_MS ;; esac
	must dmsetup create "$name-slow-$n" \
		--table "0 $(blockdev --getsz "$disk") delay $disk 0 0 $disk 0 0 $disk 0 $flush_ms"
	slow=/dev/mapper/$name-slow-$n
	must dmsetup create "$name-log-$n" --table "0 $(blockdev --getsz "$slow") log-writes $slow $log"
	cached="$cached /dev/mapper/$name-log-$n"
done
assemble $cached
mount_it
must sync "$dir/mnt/f"
must dd if="$dir/new" of="$dir/mnt/f" bs=4096 conv=notrunc status=none
mark called
sync "$dir/mnt/f" &
sleep 3
mark cut
wait $! || fail "fsync fails"
must umount "$dir/mnt"
must mdadm --stop --quiet "$array"
for n in 0 1 2 3; do
	must dmsetup remove --retry "$name-log-$n"
	must dmsetup remove --retry "$name-slow-$n"
done

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), RAID $LEVEL, ext4 in data=ordered. What reached each member for certain, from the call of fsync on:"
for n in 0 1 2 3; do
	power_cut $n called cut
done
assemble "$(loop after-0)" "$(loop after-1)" "$(loop after-2)" "$(loop after-3)"
mount_it
[ -e "$dir/mnt/f" ] || fail "f is gone, which is another fault"
if [ ! -s "$dir/mnt/f" ]; then
	echo "KEPT: after the power cut, f is empty, as it was before"
elif cmp -s "$dir/new" "$dir/mnt/f"; then
	echo "KEPT: after the power cut, f holds what was written"
elif head -c 4096 "$dir/mnt/f" | grep -q stale; then
	echo "BROKEN: after the power cut, f holds what the disk held before mkfs"
else
	echo "BROKEN: after the power cut, f holds neither what was written nor nothing"
fi
