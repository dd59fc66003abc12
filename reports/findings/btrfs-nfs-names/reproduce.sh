#!/bin/sh
# The NFS server answers a change of names once the change is on stable storage, so the client's fsync(2) of a directory
# does nothing. On Btrfs and F2FS, the server has nothing written: what the client renamed and synced has its old name
# after a power cut.
#
# A file is written through NFS, everything is synced, and the file is renamed; the directory is synced. Then the server's
# disk is copied, as it is: all that was ever written to it is in the copy, and nothing was lost in a cache.
#
#   FS=btrfs       the server's file system: btrfs, f2fs, xfs or ext4 (control)
#   CALL=rename    or chmod, mkdir, unlink, link: what is done and synced
#   ON=client      or server (control): whether this is done through NFS, or on the server's file system itself
#
# Needs root, loop devices, the modules nfsd and nfsv4, and the loopback interface; no daemon of nfs-utils may run, and
# takes part. Prints BROKEN or KEPT; exits with 2 if it could not tell.
set -eu
FS=${FS:-btrfs} CALL=${CALL:-rename} ON=${ON:-client}
DIR=$(mktemp -d)

fail() {
	echo "$0: $*" >&2
	exit 2
}

stop_server() {
	umount "$DIR/client" 2>/dev/null || :
	[ ! -e /proc/fs/nfsd/threads ] || echo 0 >/proc/fs/nfsd/threads
	for cache in auth.unix.ip nfsd.export nfsd.fh; do
		[ ! -e /proc/net/rpc/$cache/flush ] || date +%s >/proc/net/rpc/$cache/flush
	done
	umount /proc/fs/nfsd "$DIR/server" 2>/dev/null || :
	for loop in $(losetup -n -O NAME,BACK-FILE | awk -v d="$DIR/" 'index($2, d) == 1 { print $1 }'); do
		losetup -d "$loop"
	done
}

clean() {
	stop_server
	umount "$DIR/after-cut" 2>/dev/null || :
	rm -rf "$DIR"
}

case $FS in
btrfs) mkfs="mkfs.btrfs -q" ;;
f2fs) mkfs="mkfs.f2fs -q" ;;
xfs) mkfs="mkfs.xfs -q" ;;
ext4) mkfs="mkfs.ext4 -q" ;;
*) fail "FS=$FS: btrfs, f2fs, xfs or ext4" ;;
esac
for tool in losetup "${mkfs%% *}" mount awk; do
	command -v "$tool" >/dev/null || fail "needs $tool"
done
[ "$(id -u)" = 0 ] || fail "needs root"
trap clean EXIT
trap 'exit 2' HUP INT TERM
modprobe -q -a loop nfsd nfsv4 "$FS" || : # may be there already, or built in

# --- server and client -----------------------------------------------------------------------

mkdir "$DIR/server" "$DIR/client" "$DIR/after-cut"
truncate -s 320M "$DIR/disk"
$mkfs "$DIR/disk" || fail "$mkfs failed"
mount -o loop "$DIR/disk" "$DIR/server" || fail "cannot mount $FS"

# What rpc.nfsd, exportfs and rpc.mountd do. 0x2402: rw, sync, no_root_squash, insecure, no_subtree_check, fsid=0.
mount -t nfsd nfsd /proc/fs/nfsd || fail "no nfsd in this kernel"
cd /proc/fs/nfsd
echo "-3 +4 +4.1 +4.2" >versions
echo 10 >nfsv4gracetime
echo "tcp 2049" >portlist
echo 1 >threads
cd /proc/net/rpc
echo "nfsd 127.0.0.1 2147483647 local" >auth.unix.ip/channel
echo "local $DIR/server 2147483647 $((0x2402)) 65534 65534 0" >nfsd.export/channel
echo "local 1 \\x00000000 2147483647 $DIR/server" >nfsd.fh/channel
cd /
until grep -q Y /proc/fs/nfsd/v4_end_grace; do sleep 1; done
mount -i -t nfs4 -o addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2,sec=sys 127.0.0.1:/ "$DIR/client" ||
	fail "the client cannot mount"

# --- the workload ----------------------------------------------------------------------------

case $ON in client | server) there=$DIR/$ON ;; *) fail "ON=$ON: client or server" ;; esac
echo data >"$there/old"
sync # of everything: the file is durable
done_here() { # DIRECTORY: exit code 0 if what was done is there
	case $CALL in
	rename) [ -e "$1/new" ] && [ ! -e "$1/old" ] ;;
	chmod) [ "$(stat -c %a "$1/old")" = 600 ] ;;
	mkdir) [ -d "$1/directory" ] ;;
	unlink) [ ! -e "$1/old" ] ;;
	link) [ -e "$1/old" ] && [ -e "$1/new" ] ;;
	esac
}
done_here "$there" && fail "it is done before it was done"
synced=$there
case $CALL in
rename) mv "$there/old" "$there/new" ;;
chmod) chmod 600 "$there/old" && synced=$there/old ;;
mkdir) mkdir "$there/directory" ;;
unlink) rm "$there/old" ;;
link) ln "$there/old" "$there/new" ;;
*) fail "CALL=$CALL: rename, chmod, mkdir, unlink or link" ;;
esac
sync "$synced" # fsync(2) of the directory, or of the file
cp --sparse=always "$DIR/disk" "$DIR/after" # the power fails here
done_here "$there" || fail "it is not done"
stop_server

# --- what is left of it ----------------------------------------------------------------------

mount -o loop "$DIR/after" "$DIR/after-cut" || fail "the crashed $FS cannot be mounted"
echo "Linux $(uname -r), $FS, $CALL on the $ON. After the power cut:"
ls -l "$DIR/after-cut"
if done_here "$DIR/after-cut"; then
	echo "KEPT: $CALL and fsync returned, and after a power cut it is done"
else
	echo "BROKEN: $CALL and fsync returned, and after a power cut it is undone"
fi
