#!/bin/sh
# @TITLE@
#
# dm-log-writes logs a write once a later flush has made it durable, so its log up to the moment at which an operation
# returned is what the platter held if the disk lost its cache in that moment.
#
#   CUT=@CUT@      the power fails after this operation of the workload below; 0 is the first, begun: before that
#   OPTIONS=    mount options; a control may take others
#
# Needs root, loop devices and dm-log-writes. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
CUT=${CUT:-@CUT@} OPTIONS=${OPTIONS-@OPTIONS@}
NAME=cut-$$ DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

clean() {
	cd /
	umount "$DIR/mnt" 2>/dev/null || :
	dmsetup remove "$NAME" 2>/dev/null || :
	for loop in $(losetup -n -O NAME,BACK-FILE | awk -v d="$DIR/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$loop"
	done
	rm -rf "$DIR"
}

for tool in dmsetup losetup mount awk od dd @TOOLS@; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes @MODULES@ || : # may be there already, or built in

# --- a disk with a write cache, of dm-log-writes --------------------------------------------------

# The file system is on $DIR/disk; what is written to it is logged in $DIR/log.
disk_on() {
	cp --sparse=always "$DIR/base" "$DIR/disk"
	truncate -s 128M "$DIR/log"
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

# show MARK: print the log from the mark on; replay MARK: apply to $DIR/after all that is in front of it.
# Sectors are of 512 bytes. Sector 0: magic, version, number of entries. An entry is a sector with the place, the
# length, flags (1 FLUSH, 2 FUA, 4 DISCARD, 8 MARK) and the length of a mark's text, which follows; then the data.
walk() {
	at=1 shown=
	for n in $(seq 0 $(($(od -An -tu8 -j16 -N8 "$DIR/log") - 1))); do
		set -- "$1" "$2" $(od -An -v -tu8 -j$((at * 512)) -N32 "$DIR/log")
		text=
		if [ $(($5 & 8)) != 0 ]; then
			text=$(dd if="$DIR/log" bs=1 skip=$((at * 512 + 32)) count="$6" 2>/dev/null | tr -d '\0')
		fi
		if [ "$text" = "$2" ]; then
			[ "$1" != show ] && return
			shown=1
		fi
		if [ "$1" = show ]; then
			kind=WRITE
			[ "$4" = 0 ] && kind=
			[ $(($5 & 1)) != 0 ] && kind="$kind FLUSH"
			[ $(($5 & 2)) != 0 ] && kind="$kind FUA"
			[ -n "$text" ] && kind="mark $text"
			[ -n "$shown" ] && echo "  $n: sector $3 + $4 $kind"
		elif [ $(($5 & 12)) = 0 ] && [ "$4" != 0 ]; then
			dd if="$DIR/log" of="$DIR/after" bs=512 skip=$((at + 1)) seek="$3" count="$4" conv=notrunc status=none
		fi
		at=$((at + 1))
		[ $(($5 & 4)) != 0 ] || at=$((at + $4))
	done
	[ "$1" = show ] || fail "the log has no mark $2"
}

# --- the workload ----------------------------------------------------------------------------

# put FILE OFFSET LENGTH LETTER [FLAG,...]; flags are sync, dsync and direct
put() {
	head -c "$3" /dev/zero | tr '\0' "$4" |
		dd of="$1" bs="$3" count=1 seek="$2" iflag=fullblock oflag=seek_bytes"${5:+,$5}" conv=notrunc status=none
}

mkdir "$DIR/mnt"
truncate -s @SIZE@ "$DIR/base"
@MKFS@ "$DIR/base" >"$DIR/made" 2>&1 || fail "mkfs: $(tail -n 1 "$DIR/made")"
disk_on
mount -t @FSTYPE@ -o "${OPTIONS:-defaults}" "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount @FSTYPE@"
cd "$DIR/mnt"
mark begun
@OPERATIONS@
cd /
umount "$DIR/mnt"
disk_off

# --- what is left of it ----------------------------------------------------------------------

case $CUT in
begun) from=begun to=begun ;;
0) from=begun to=done-0 ;;
*) from=done-$((CUT - 1)) to=done-$CUT ;;
esac
echo "Linux $(uname -r), @FSTYPE@ ${OPTIONS:-(no options)}. The log of writes, from the mark $from on:"
walk show "$from" | head -n 24
cp --sparse=always "$DIR/base" "$DIR/after"
walk replay "$to"
AFTER=$(losetup -f --show "$DIR/after") || fail "no loop device"
if ! mount -t @FSTYPE@ -o "@FIRST@${OPTIONS:+,$OPTIONS}" "$AFTER" "$DIR/mnt"@THEN@; then
	@IF_UNMOUNTABLE@
fi
ls -lRA "$DIR/mnt" || : # ends with 1 at a damaged name
umount "$DIR/mnt"
@CHECK@
