#!/bin/sh
# dm-cache: the metadata that says that a block is in the cache is committed before the block itself is durable there.
#
# The cache's disk has a volatile cache, of dm-log-writes: its log up to the power cut is what is on that platter for
# certain. The disk behind it and the one with the metadata lose nothing: they are copied as they are in that moment.
# Blocks are only read, until the policy has taken some into the cache. Then the metadata is committed, because somebody
# asks for the status (a flush of the cached device commits it too, before it is passed on). Nothing is written to the
# cached device.
#
#   MODE=writeback      the default
#   MODE=writethrough   where the disk behind has all data at any time
#   FLUSH=no            the default
#   FLUSH=yes           control: the cached device is flushed before the power cut
#
# Needs root, loop devices, dm-log-writes and dm-cache. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -u
MODE=${MODE:-writeback} FLUSH=${FLUSH:-no}

fail() {
	echo "reproduce.sh: $*" >&2
	exit 2
}

must() { # a step without which there is nothing to be seen
	"$@" >&2 || fail "failed: $*"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dmsetup losetup blockdev od dd cmp awk; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
modprobe -q -a loop dm-log-writes dm-cache dm-cache-smq || : # may be loaded already, or built in
# Without udev, dmsetup itself has to make the nodes in /dev/mapper.
[ -e /run/udev/control ] || export DM_DISABLE_UDEV=1

name=cut-$$ block=65536 blocks=32
dir=$(mktemp -d) || fail "no temporary directory"
clean_up() {
	dmsetup remove --retry "$name-cached" 2>/dev/null
	dmsetup remove --retry "$name-log" 2>/dev/null
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

mark() {
	must dmsetup message "$name-log" 0 mark "$1"
}

# cached METADATA CACHE DISK: dm-cache of these, with blocks of 64 KiB
cached() {
	must dmsetup create "$name-cached" --table \
		"0 $(blockdev --getsz "$3") cache $1 $2 $3 $((block / 512)) 1 $MODE smq 0"
	dmsetup mknodes "$name-cached"
}

promoted() { # how many blocks were taken into the cache (Documentation/admin-guide/device-mapper/cache.rst, "Status")
	dmsetup status --noflush "$name-cached" | awk '{ print $13 }'
}

# power_cut FROM UNTIL: $dir/after becomes what the disk held when UNTIL was logged; prints the log from FROM on.
# The log is in sectors of 512 bytes (drivers/md/dm-log-writes.c). Sector 0: magic, version, number of entries. An
# entry is a sector with place, length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK), length of the mark's text, and
# that text; then, unless it is a discard, the data.
power_cut() {
	from=$1 until=$2 at=1 shown= later=0
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
		if [ -n "$shown" ]; then
			if [ -n "$text" ]; then
				echo "  $entry: mark \"$text\""
			else
				echo "  $entry: sector $1, $2 sectors$what"
			fi
		fi
		if [ $later = 0 ] && [ $(($3 & 12)) = 0 ] && [ "$2" != 0 ]; then
			must dd if="$dir/log" of="$dir/after" bs=512 skip=$((at + 1)) seek="$1" count="$2" conv=notrunc status=none
		fi
		# What came later is shown a little, but not replayed.
		if [ $later != 0 ] || [ "$text" = "$until" ]; then
			later=$((later + 1))
			[ $later -le 8 ] || return 0
		fi
		at=$((at + 1))
		[ $(($3 & 4)) != 0 ] || at=$((at + $2))
	done
	[ $later != 0 ] || fail "the log has no mark $until"
}

# --- what is done --------------------------------------------------------------------------------

case $MODE in writeback | writethrough) ;; *) fail "MODE=$MODE: writeback or writethrough" ;; esac
case $FLUSH in no | yes) ;; *) fail "FLUSH=$FLUSH: no or yes" ;; esac
must dd if=/dev/urandom of="$dir/data" bs=$block count=$blocks status=none
must cp "$dir/data" "$dir/disk"
must truncate -s 32M "$dir/disk"
must truncate -s 4M "$dir/metadata"
# The cache's disk was in use before.
yes 'of somebody else' | head -c 16M >"$dir/base" || fail "no space for the cache"
must cp "$dir/base" "$dir/cache"
must truncate -s 128M "$dir/log"
disk=$(loop disk) metadata=$(loop metadata) cache=$(loop cache) log=$(loop log)
must dmsetup create "$name-log" --table "0 $(blockdev --getsz "$cache") log-writes $cache $log"
dmsetup mknodes "$name-log"
cached "$metadata" "/dev/mapper/$name-log" "$disk"

mark reads
round=0
while [ "$(promoted)" = 0 ]; do
	round=$((round + 1))
	[ $round -le 200 ] || fail "nothing was taken into the cache"
	must dd if="/dev/mapper/$name-cached" of=/dev/null bs=$block count=$blocks iflag=direct status=none
done
sleep 5
taken=$(promoted)
dmsetup status "$name-cached" # which commits the metadata, too
sync
[ $FLUSH = no ] || must blockdev --flushbufs "/dev/mapper/$name-cached"
[ $FLUSH = no ] || must dd if=/dev/null of="/dev/mapper/$name-cached" conv=fsync,notrunc status=none
mark cut
must cp --sparse=always "$dir/disk" "$dir/disk-after"
must cp --sparse=always "$dir/metadata" "$dir/metadata-after"
must dmsetup remove --retry "$name-cached"
must dmsetup remove --retry "$name-log"

# --- what is left of it --------------------------------------------------------------------------

echo "Linux $(uname -r), dm-cache, $MODE: $taken blocks were taken into the cache, flush: $FLUSH. What reached its disk:"
power_cut reads cut
cached "$(loop metadata-after)" "$(loop after)" "$(loop disk-after)"
dmsetup status --noflush "$name-cached"
lost=0
for n in $(seq 0 $((blocks - 1))); do
	must dd if="/dev/mapper/$name-cached" of="$dir/found" bs=$block skip="$n" count=1 iflag=direct status=none
	must dd if="$dir/data" of="$dir/wanted" bs=$block skip="$n" count=1 status=none
	cmp -s "$dir/found" "$dir/wanted" || lost=$((lost + 1))
done
if [ $lost = 0 ]; then
	echo "KEPT: after the power cut, all $blocks blocks, which were only read, read as before"
else
	echo "BROKEN: after the power cut, $lost of $blocks blocks, which were only read, hold what the cache's disk held before"
fi
