#!/bin/sh
# exFAT: after a power cut, a directory may hold half of a new name behind its end. fsck.exfat before 1.3.0 calls the file
# system clean, and the kernel makes it read-only at the next new name in that directory.
#
# A name on exFAT is three entries of 32 bytes or more. Five files in d fill fifteen of the sixteen entries of its first
# block; those of the sixth, which is not synced before, lie in two blocks. dm-log-writes logs what its fsync writes. The
# power fails before the disk's cache is flushed: all was written but one of those two blocks. `fsck.exfat -y` is run on
# that, as at boot, it is mounted, and a file is made in d.
#
#   LOST=first     the block with the first of the three entries, the default
#   LOST=second    control: the block with the other two
#   LOST=none      control: neither
#
# Needs root, loop devices, dm-log-writes and exfatprogs. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
LOST=${LOST:-first}
NAME=cut-$$ DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	umount "$DIR/mnt" 2>/dev/null || :
	dmsetup remove "$NAME" 2>/dev/null || :
	for loop in $(losetup -n -O NAME,BACK-FILE | awk -v d="$DIR/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$loop"
	done
	rm -rf "$DIR"
}

for tool in dmsetup losetup mkfs.exfat fsck.exfat mount awk od dd; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes exfat nls_utf8 || : # may be there already, or built in

# --- a disk with a write cache, of dm-log-writes --------------------------------------------------

# The file system is on $DIR/disk; what is written to it is logged in $DIR/log.
disk_on() {
	cp --sparse=always "$DIR/base" "$DIR/disk"
	truncate -s 64M "$DIR/log"
	disk=$(losetup -f --show "$DIR/disk") log=$(losetup -f --show "$DIR/log")
	echo "0 $(blockdev --getsz "$disk") log-writes $disk $log" | dmsetup create "$NAME" ||
		fail "no dm-log-writes in this kernel"
	dmsetup mknodes "$NAME" # where there is no udev
}

mark() {
	dmsetup message "$NAME" 0 mark "$1"
}

disk_off() {
	dmsetup remove --retry "$NAME"
	losetup -d "$disk"
	losetup -d "$log"
}

# show MARK: print the log from the mark on. find MARK: the sector, in the log from the mark on, of a block that begins with
# the second and the third entry of a name. replay MARK FILE: apply to "$DIR/after" all that is in front of the mark, but
# what was written to sector $lost. Sectors are of 512 bytes.
# Sector 0: magic, version, number of entries. An entry is a sector with the place, the length, flags (1 FLUSH, 2 FUA,
# 4 DISCARD, 8 MARK) and the length of a mark's text, which follows; then the data.
walk() {
	at=1 shown=
	for n in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$DIR/log") - 1))); do
		set -- "$1" "$2" $(od -An -v -tu8 -j$((at * 512)) -N32 "$DIR/log")
		text=
		if [ $(($5 & 8)) != 0 ]; then
			text=$(dd if="$DIR/log" bs=1 skip=$((at * 512 + 32)) count="$6" 2>/dev/null | tr -d '\0')
		fi
		if [ "$text" = "$2" ]; then
			[ "$1" = replay ] && return
			shown=1
		fi
		case $1 in
		show)
			kind=WRITE
			[ "$4" = 0 ] && kind=
			[ $(($5 & 1)) != 0 ] && kind="$kind FLUSH"
			[ $(($5 & 2)) != 0 ] && kind="$kind FUA"
			[ -n "$text" ] && kind="mark $text"
			[ -n "$shown" ] && echo "  $n: sector $3 + $4 $kind"
			;;
		find)
			# 192 and 193: the stream extension and the file's name, each in use
			for k in $(seq 0 $(($4 - 1))); do
				if [ -n "$shown" ] && [ "$(byte $(((at + 1 + k) * 512)))" = 192 ] &&
					[ "$(byte $(((at + 1 + k) * 512 + 32)))" = 193 ]; then
					echo $(($3 + k))
					return
				fi
			done
			;;
		replay)
			if [ $(($5 & 12)) = 0 ]; then
				for k in $(seq 0 $(($4 - 1))); do
					[ -n "$once" ] && [ $(($3 + k)) = "$lost" ] ||
						dd if="$DIR/log" of="$DIR/after" bs=512 skip=$((at + 1 + k)) seek=$(($3 + k)) count=1 \
							conv=notrunc status=none
				done
			fi
			;;
		esac
		[ "$text" = before ] && once=1
		at=$((at + 1))
		[ $(($5 & 4)) != 0 ] || at=$((at + $4))
	done
	[ "$1" = show ] || fail "the log has no $2"
}

byte() {
	od -An -tu1 -j"$1" -N1 "$DIR/log" | tr -d ' '
}

# --- the workload ----------------------------------------------------------------------------

mkdir "$DIR/mnt"
truncate -s 64M "$DIR/base"
mkfs.exfat -c 4096 "$DIR/base" >/dev/null
disk_on
mount -t exfat "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount exfat"

mkdir "$DIR/mnt/d"
for n in 1 2 3 4 5; do
	echo text >"$DIR/mnt/d/f$n"
done
sync
sync "$DIR"/mnt/d/f* # with a flush, which sync(1) of exFAT sends no more since 6.16
mark before
echo text >"$DIR/mnt/d/f6"
sync "$DIR/mnt/d/f6"
mark returned
umount "$DIR/mnt"
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), exfat. The log of writes, from the sixth file on:"
walk show before | awk '{ print } /mark returned/ { exit }'
second=$(walk find before)
case $LOST in
first) lost=$((second - 1)) ;;
second) lost=$second ;;
none) lost=-1 ;;
*) fail "LOST=$LOST: first, second or none" ;;
esac
echo "Of the new name, one entry is in sector $((second - 1)), and two are in sector $second. Lost: $LOST"
cp --sparse=always "$DIR/base" "$DIR/after"
once=
walk replay returned
fsck.exfat -y "$DIR/after" || [ $? = 1 ] || fail "fsck.exfat -y ended with an error"
mount -t exfat -o loop "$DIR/after" "$DIR/mnt" || fail "the crashed exfat cannot be mounted"
echo "Names in d: $(ls "$DIR/mnt/d" | tr '\n' ' ')"
told=
if ! (: >"$DIR/mnt/d/new") 2>"$DIR/said"; then
	told="a new file in d: $(sed 's/.*: //' "$DIR/said")"
	(: >"$DIR/mnt/other") 2>"$DIR/said" || told="$told; then one elsewhere: $(sed 's/.*: //' "$DIR/said")"
fi
umount "$DIR/mnt"
if [ -z "$told" ]; then
	echo "KEPT: after the power cut and fsck.exfat -y, files can be made in d"
else
	echo "And fsck.exfat -y says once more:"
	fsck.exfat -y "$DIR/after" || :
	echo "BROKEN: after the power cut and fsck.exfat -y, $told"
fi
