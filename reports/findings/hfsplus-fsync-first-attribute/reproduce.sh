#!/bin/sh
# HFS+: fsync(2) of a file with the first extended attribute of the volume writes the tree of attributes before the
# tree's header says where its root is. After a power cut the file has no attribute.
#
# A file is made and synced; it gets an attribute and is synced by itself. dm-log-writes logs a write once a later flush
# has made it durable, so its log up to the moment at which that fsync returned is what the platter held if the disk
# lost its cache in that moment.
#
#   FIRST=no       control: another file has got an attribute before, and a sync followed
#   CALL=sync      control: sync(2) in place of fsync
#
# Needs root, loop devices, dm-log-writes, setfattr and getfattr. Prints BROKEN or KEPT; exits with 2 if it could not
# tell.
set -eu
CALL=${CALL:-fsync} FIRST=${FIRST:-yes}
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

for tool in dmsetup losetup mount awk base64 gzip od dd setfattr getfattr; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop dm-log-writes hfsplus || : # may be there already, or built in

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

# show MARK: print the log from the mark on; replay MARK FILE: apply to FILE all that is in front of it.
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

# An empty volume of 4 MiB, as mkfs.hfsplus makes it, which Debian has outside main.
volume() {
	base64 -d <<-END | gzip -d | gzip -d
		H4sIAAAAAAACA5Pv5mAAASbmtzf3+912kGH/cP+ooIukU8uuy7KcrJ17tfkPKIes3VWSdCJAxd/GdX6LTiXTKhsG436HbV9yjnct
		YHRVYlpaY3fJvDz9/vwfNjf7GOxWfX78YtrERyUlRqtufU8P36yVW3u1eMbls5rvlC4lygmVzhJe++WO1XZ38cntJ78+zVqXeNt+
		r0me8VOji6df6pzOPVv++dVPufeh/0/OY2Q4MDtSR+yyaft+n/tpP5/wAV164PZJ/kdHdz0+/Kw69Ovf7P1Z088+PLcuPv/lNGYG
		hg+MMmeS5R5L3OBkwA1uxHRpXJP9L7NyfnfcubrLa7dtf309etdTqOwf9r5nhv2FPG9YGEbBKBhS4L2iq4hv4PLL19ovvny2afrm
		8K/ayv+2fI01Kz3NyMDwg4EPnLJvfVO6ev7P/FfP//39IWb/KL1mbf3+6/lMUnN/b14dOXXtn85Xuk5bswK3/4sVB5pZsfb+x+yv
		f/hHQ3cUjIJRMApGwSgYBaNgFIyCUTCcwYbc58cv6iofffkiJWTr+/Pr0kJv/Vr13GD57OA7rksO26i8MlGPermzNK9fT41/8uvT
		V2MOb6uvyryTdip10fTLkdNuz3r/7Opn23ur/022bS7/LK6fyLqdgcGBAQAh7PyadREAAA==
	END
}

# --- the workload ----------------------------------------------------------------------------

mkdir "$DIR/mnt"
volume >"$DIR/base"
disk_on
mount -t hfsplus "/dev/mapper/$NAME" "$DIR/mnt" || fail "cannot mount hfsplus"

echo old >"$DIR/mnt/f"
echo old >"$DIR/mnt/g"
case $FIRST in
yes) ;;
no) setfattr -n user.a -v 1 "$DIR/mnt/g" ;;
*) fail "FIRST=$FIRST: yes or no" ;;
esac
sync
mark before
setfattr -n user.a -v 1 "$DIR/mnt/f"
case $CALL in
fsync) sync "$DIR/mnt/f" ;;
sync) sync ;;
*) fail "CALL=$CALL: fsync or sync" ;;
esac
mark returned
[ "$(getfattr --absolute-names -n user.a --only-values "$DIR/mnt/f" 2>/dev/null)" = 1 ] || fail "f has no attribute before the power cut"
# The power fails here. What follows in the log is of no account.
umount "$DIR/mnt"
disk_off

# --- what is left of it ----------------------------------------------------------------------

echo "Linux $(uname -r), hfsplus. The log of writes, from the attribute on:"
walk show before | awk '{ print } /mark returned/ { seen = 1 } seen && ++n == 4 { exit }'
cp --sparse=always "$DIR/base" "$DIR/after"
walk replay returned
# The volume header, at 1024, has the fork of the tree at 352: its first extent begins with block H. The tree's header
# record follows 14 bytes later: its depth, and the number of its root (TN1150). All are big-endian.
start=$((0x$(od -An -v -tx1 -j$((1024 + 352 + 16)) -N4 "$DIR/after" | tr -d ' ') * 4096))
echo "The tree of attributes: depth and root $(od -An -v -tx1 -j$((start + 14)) -N6 "$DIR/after")"
mount -t hfsplus -o loop,force "$DIR/after" "$DIR/mnt" || fail "the crashed file system cannot be mounted"
[ -e "$DIR/mnt/f" ] || fail "f is not there either"
found=$(getfattr --absolute-names -n user.a --only-values "$DIR/mnt/f" 2>&1) || :
echo "The attribute of f: $found"
umount "$DIR/mnt"
case $found in
1) echo "KEPT: after the power cut, f has the attribute" ;;
*) echo "BROKEN: $CALL returned, and after a power cut f has no attribute" ;;
esac
