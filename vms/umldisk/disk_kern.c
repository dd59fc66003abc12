// SPDX-License-Identifier: GPL-2.0
/*
 * The disk of a UML guest as memory of the host: what powercut-disk shows is copied from where it lies, without a
 * message. See disk.h for what is shared.
 *
 * The disk is called vda, and is in all that a file system asks of it what virtio_blk makes of the same process
 * (vms/disk/src/block.rs), so that what is seen by either is the same. Every request is done when it is asked for,
 * by the one that asks; while a recording is made, its completion may come later (record_kern.c).
 */
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/spinlock.h>
#include "disk.h"
#include "record.h"

#define BLOCK_SECTORS 8U
#define BLOCK_BYTES 4096U
#define SEGMENTS_MAX 126
#define ZERO_SECTORS_MAX (1U << 22)
#define MINORS 16

/* The harness looks for these words in the file of a kernel (harness/guests/uml.py). */
static const char driver[] __used = "powercut_disk driver 1";

static struct {
	spinlock_t lock; /* of the ring, the table and the arena: UML may have several processors one day */
	struct powercut_head *head;
	u64 *table;
	struct powercut_asked *ring;
	u8 *arena;
	u64 epoch;
	const u8 *base, *log;
	unsigned long long base_bytes, log_bytes;
	struct blk_mq_tag_set tags;
	struct gendisk *disk;
	int major;
} shared;

static char *shared_path;

static int __init take_path(char *text)
{
	shared_path = text;
	return 1;
}
__setup("powercut_disk=", take_path);

/* What follows is seen by the disk process to have begun, and sees what that has put there before. */
static void begin(void)
{
	spin_lock(&shared.lock);
	WRITE_ONCE(shared.head->begun, shared.head->begun + 1);
	mb(); /* on a machine with several processors, which UML's smp_mb() does not know of */
}

static void end(void)
{
	smp_store_release(&shared.head->ended, shared.head->ended + 1);
	spin_unlock(&shared.lock);
}

static const u8 *map_one(const char *path, unsigned long long *bytes)
{
	int error = 0;
	const u8 *at;

	if (!*path)
		return NULL;
	at = powercut_map(path, 0, bytes, &error);
	if (!at)
		pr_err("powercut_disk: cannot map %s: error %d of the host\n", path, error);
	return at;
}

/* Base image and log are those of the state shown. */
static bool up_to_date(void)
{
	const char *head = (const char *)shared.head;

	if (shared.epoch == READ_ONCE(shared.head->epoch))
		return shared.base;
	if (shared.base)
		powercut_unmap((void *)shared.base, shared.base_bytes);
	if (shared.log)
		powercut_unmap((void *)shared.log, shared.log_bytes);
	shared.epoch = READ_ONCE(shared.head->epoch);
	shared.base = map_one(head + POWERCUT_BASE_PATH, &shared.base_bytes);
	shared.log = map_one(head + POWERCUT_LOG_PATH, &shared.log_bytes);
	return shared.base;
}

/* Where a block lies; NULL: it is all zeros. */
static const u8 *place_of(u64 block)
{
	u64 entry = shared.table[block];
	u64 where = entry & POWERCUT_PLACE_MASK;

	switch (entry >> POWERCUT_PLACE_SHIFT) {
	case POWERCUT_IN_LOG:
		return shared.log + (where << SECTOR_SHIFT);
	case POWERCUT_IN_ARENA:
		return shared.arena + where * BLOCK_BYTES;
	case POWERCUT_ZERO:
		return NULL;
	default:
		return shared.base + block * BLOCK_BYTES;
	}
}

/* A block that the guest may write to, with what it holds, unless all of it is about to be overwritten. */
static u8 *own(u64 block, bool whole)
{
	const u8 *now = place_of(block);
	u64 first = block * BLOCK_SECTORS;
	unsigned int sectors = min_t(u64, BLOCK_SECTORS, shared.head->sectors - first);
	u8 *mine;

	if (shared.table[block] >> POWERCUT_PLACE_SHIFT == POWERCUT_IN_ARENA)
		return (u8 *)now;
	if (shared.head->used >= shared.head->arena_blocks)
		return NULL;
	mine = shared.arena + shared.head->used * BLOCK_BYTES;
	if (!whole && now)
		memcpy(mine, now, sectors << SECTOR_SHIFT);
	else if (!whole)
		memset(mine, 0, BLOCK_BYTES);
	shared.table[block] = POWERCUT_IN_ARENA << POWERCUT_PLACE_SHIFT | shared.head->used++;
	return mine;
}

static void read_part(u64 block, unsigned int from, u8 *to, unsigned int bytes)
{
	const u8 *at = place_of(block);

	if (at)
		memcpy(to, at + from, bytes);
	else
		memset(to, 0, bytes);
}

static bool write_part(u64 block, unsigned int from, const u8 *data, unsigned int bytes)
{
	u8 *at = own(block, bytes == BLOCK_BYTES);

	if (at)
		memcpy(at + from, data, bytes);
	return at;
}

static bool zero_part(u64 block, unsigned int from, unsigned int bytes)
{
	u8 *at;

	if (bytes == BLOCK_BYTES) {
		shared.table[block] = POWERCUT_ZERO << POWERCUT_PLACE_SHIFT;
		return true;
	}
	at = own(block, false);
	if (at)
		memset(at + from, 0, bytes);
	return at;
}

/* Carry out a request on a stretch of sectors, block by block; `data` is NULL for zeros. */
static bool transfer(u64 sector, u8 *data, u64 bytes, bool out)
{
	u64 at = sector << SECTOR_SHIFT;

	while (bytes) {
		u64 block = at / BLOCK_BYTES;
		unsigned int from = at % BLOCK_BYTES;
		unsigned int part = min_t(u64, bytes, BLOCK_BYTES - from);

		if (!out)
			read_part(block, from, data, part);
		else if (!(data ? write_part(block, from, data, part) : zero_part(block, from, part)))
			return false;
		if (data)
			data += part;
		at += part;
		bytes -= part;
	}
	return true;
}

static bool segments(struct request *rq, bool out)
{
	struct req_iterator iter;
	struct bio_vec bvec;
	u64 sector = blk_rq_pos(rq);
	bool done = true;

	rq_for_each_segment(bvec, rq, iter) {
		u8 *data = bvec_kmap_local(&bvec);

		done = done && transfer(sector, data, bvec.bv_len, out);
		kunmap_local(data);
		sector += bvec.bv_len >> SECTOR_SHIFT;
	}
	return done;
}

/* The entry counts once `asked` does, and what it tells of is done by then. */
static bool note(enum powercut_what what, u64 sector, u32 sectors)
{
	u64 number = shared.head->asked;

	if (number >= shared.head->ring_entries) {
		shared.head->refused++;
		return false;
	}
	shared.ring[number] = (struct powercut_asked){ sector, sectors, what };
	smp_store_release(&shared.head->asked, number + 1);
	return true;
}

static enum powercut_what carry_out(struct request *rq)
{
	switch (req_op(rq)) {
	case REQ_OP_READ:
		return segments(rq, false) ? POWERCUT_READ : POWERCUT_FAILED;
	case REQ_OP_WRITE:
		return segments(rq, true) ? POWERCUT_WRITE : POWERCUT_FAILED;
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		return transfer(blk_rq_pos(rq), NULL, blk_rq_bytes(rq), true) ? POWERCUT_ZEROED :
										POWERCUT_FAILED;
	case REQ_OP_FLUSH:
		return POWERCUT_FLUSH;
	default:
		return POWERCUT_FAILED;
	}
}

static blk_status_t answer(struct request *rq)
{
	enum powercut_what what = POWERCUT_FAILED;
	bool noted;

	begin();
	if (up_to_date())
		what = carry_out(rq);
	noted = note(what, blk_rq_pos(rq), blk_rq_sectors(rq));
	end();
	return noted && what != POWERCUT_FAILED ? BLK_STS_OK : BLK_STS_IOERR;
}

static blk_status_t queue_one(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	blk_status_t status;

	blk_mq_start_request(data->rq);
	status = answer(data->rq);
	if (status != BLK_STS_OK || !powercut_hold(data->rq))
		blk_mq_end_request(data->rq, status);
	return BLK_STS_OK;
}

static const struct blk_mq_ops queue_operations = { .queue_rq = queue_one };
static const struct block_device_operations disk_operations = { .owner = THIS_MODULE };

static ssize_t serial_show(struct device *device, struct device_attribute *attribute, char *text)
{
	begin();
	note(POWERCUT_PHASE, 0, 0);
	end();
	return sysfs_emit(text, "powercut");
}
static DEVICE_ATTR_RO(serial);
static struct attribute *disk_attrs[] = { &dev_attr_serial.attr, NULL };
ATTRIBUTE_GROUPS(disk);

static int __init map_shared(void)
{
	unsigned long long bytes;
	int error = 0;

	shared.head = powercut_map(shared_path, 1, &bytes, &error);
	if (!shared.head) {
		pr_err("powercut_disk: cannot map %s: error %d of the host\n", shared_path, error);
		return -ENXIO;
	}
	if (shared.head->magic != POWERCUT_MAGIC || shared.head->bytes != bytes) {
		pr_err("powercut_disk: %s is no disk of this version\n", shared_path);
		return -EINVAL;
	}
	shared.table = (void *)shared.head + shared.head->table;
	shared.ring = (void *)shared.head + shared.head->ring;
	shared.arena = (void *)shared.head + shared.head->arena;
	return 0;
}

static int __init add_disk_to_queue(void)
{
	struct queue_limits limits = {
		.features = BLK_FEAT_ROTATIONAL | BLK_FEAT_WRITE_CACHE,
		.logical_block_size = SECTOR_SIZE,
		.max_segments = SEGMENTS_MAX,
		.max_hw_sectors = UINT_MAX,
		.max_segment_size = UINT_MAX,
		.max_hw_discard_sectors = ZERO_SECTORS_MAX,
		.max_write_zeroes_sectors = ZERO_SECTORS_MAX,
		.max_discard_segments = 1,
		.discard_granularity = SECTOR_SIZE,
	};
	int error;

	shared.disk = blk_mq_alloc_disk(&shared.tags, &limits, NULL);
	if (IS_ERR(shared.disk))
		return PTR_ERR(shared.disk);
	strscpy(shared.disk->disk_name, "vda", DISK_NAME_LEN);
	shared.disk->major = shared.major;
	shared.disk->minors = MINORS;
	shared.disk->fops = &disk_operations;
	set_capacity(shared.disk, shared.head->sectors);
	error = device_add_disk(NULL, shared.disk, disk_groups);
	if (error)
		put_disk(shared.disk);
	return error;
}

static int __init powercut_disk_init(void)
{
	int error;

	if (!shared_path)
		return 0;
	spin_lock_init(&shared.lock);
	shared.tags.queue_depth = powercut_hold_begin();
	error = map_shared();
	if (error)
		return error;
	/* the number that virtio_blk gets where we are not: Btrfs prints it */
	shared.major = register_blkdev(0, "powercut");
	if (shared.major < 0)
		return shared.major;
	shared.tags.ops = &queue_operations;
	shared.tags.nr_hw_queues = 1;
	shared.tags.numa_node = NUMA_NO_NODE;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
	shared.tags.flags = BLK_MQ_F_SHOULD_MERGE;
#endif
	error = blk_mq_alloc_tag_set(&shared.tags);
	if (error)
		return error;
	error = add_disk_to_queue();
	if (error)
		blk_mq_free_tag_set(&shared.tags);
	return error;
}
device_initcall(powercut_disk_init);

#endif
