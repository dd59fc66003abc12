/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the disk process and this driver share: one file in memory, little-endian. The other side of it is
 * vms/disk/src/window.rs, and a test holds the two against each other.
 *
 *   struct powercut_head     at 0
 *   path of the base image   at POWERCUT_BASE_PATH, ends with a zero
 *   path of the write log    at POWERCUT_LOG_PATH; empty: there is none
 *   the table                at head.table: for each block of 4 KiB, where its bytes are
 *   the ring                 at head.ring: what the guest asked for, in order
 *   the arena                at head.arena: blocks that lie neither in the base image nor in the log
 *
 * The disk process writes the table, and resets `asked` and `used`, only while the guest asks for nothing: it compares
 * `begun` and `ended` before and after, and refuses to show a state to a guest that was not quiet.
 */
#ifndef POWERCUT_DISK_H
#define POWERCUT_DISK_H

#define POWERCUT_MAGIC 0x316b736964776370ULL /* "pcwdisk1" */
#define POWERCUT_BASE_PATH 4096
#define POWERCUT_LOG_PATH 8192
#define POWERCUT_PATH_BYTES 4096

struct powercut_head {
	unsigned long long magic;
	unsigned long long sectors;
	unsigned long long epoch; /* another one: base image and log are other files */
	unsigned long long bytes; /* of the whole file */
	unsigned long long table;
	unsigned long long ring;
	unsigned long long ring_entries;
	unsigned long long arena;
	unsigned long long arena_blocks; /* of them the guest may take this many, from the first */
	/* written by the guest */
	unsigned long long begun, ended; /* requests, ever */
	unsigned long long asked; /* entries in the ring */
	unsigned long long used; /* blocks of the arena that the guest has taken */
	unsigned long long refused; /* requests for which there was no room in the ring */
};

/* An entry of the table. 0: in the base image, at its own place. */
#define POWERCUT_PLACE_SHIFT 62
#define POWERCUT_PLACE_MASK ((1ULL << POWERCUT_PLACE_SHIFT) - 1)
#define POWERCUT_IN_LOG 1ULL /* from this sector of the log on */
#define POWERCUT_IN_ARENA 2ULL /* this block of the arena */
#define POWERCUT_ZERO 3ULL

struct powercut_asked {
	unsigned long long sector;
	unsigned int sectors;
	unsigned int what;
};

enum powercut_what {
	POWERCUT_READ = 1,
	POWERCUT_WRITE = 2,
	POWERCUT_ZEROED = 3,
	POWERCUT_FLUSH = 4,
	POWERCUT_PHASE = 5, /* the agent asked for the serial number */
	POWERCUT_FAILED = 6,
};

/* Map the file at `path`, whole. Returns its address, or a null pointer and the host's errno. */
void *powercut_map(const char *path, int writable, unsigned long long *bytes, int *error);
void powercut_unmap(void *at, unsigned long long bytes);

#endif
