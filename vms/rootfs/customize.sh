#!/bin/sh
# The last step of mmdebstrap: $1 is the root, whole and configured. Take out what makes two builds differ
# or is of no use in a read-only root, and make the image of the rest, inside of it: in a user namespace
# nothing outside can be written, so mmdebstrap itself takes the files out.
set -eu
root=$1

chroot "$root" dpkg-query -W >"$root/packages.txt"
# Perl is in Debian's essential set for dpkg alone; of the rest only the page about bonnie++'s table uses it.
rm -rf "$root"/usr/lib/*/perl "$root"/usr/share/perl "$root"/usr/lib/*/gconv
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/* "$root"/var/log/* "$root"/var/lib/dpkg "$root"/tmp/*
rm -f "$root/etc/machine-id" "$root/etc/hostname" "$root/etc/resolv.conf"
mkdir -p "$root/usr/lib/modules" "$root/mnt" "$root/run" "$root/var/tmp" "$root/sys"
# Programs ask for this one rather than for /proc.
ln -sf /proc/self/mounts "$root/etc/mtab"

# -x-1: no extended attributes. What the kernel shows in the first three is mounted while packages are set up.
mkfs.erofs -zlz4 -x-1 -T0 -U 00000000-0000-0000-0000-000000000000 --all-root --quiet \
	--exclude-regex='^(proc|sys|dev)/.' --exclude-path=root.erofs --exclude-path=packages.txt \
	"$root/root.erofs" "$root"
