// SPDX-License-Identifier: GPL-2.0
/*
 * A recording that waits for no process of the host: its disk completes writes as late as the guest allows, and its log
 * device is a file of the host, mapped.
 *
 * With `powercut_hold=ORDER:NANOSECONDS:SEED` every request of the disk is answered by an interrupt. Writes are carried
 * out at once but reported as completed when the guest asks for a flush, when many are held, or when it has asked for
 * nothing for so long. In virtual time that is when nothing is left to run, however fast the host is. Which of them are
 * reported is the same as in vms/disk/src/hold.rs, which does this for guests that reach their disk by messages.
 */
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)

#include <linux/blk-mq.h>
#include <linux/blkdev.h>
#include <linux/hrtimer.h>
#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/spinlock.h>
#include "disk.h"
#include "record.h"

#ifdef CONFIG_UML_TIME_TRAVEL_SUPPORT
/* The harness looks for these words in the file of a kernel (harness/guests/uml.py). */
static const char records[] __used = "powercut_disk records 1";
#endif

/* --- completions ------------------------------------------------------------------------- */

#define LATENCY_NS 1000 /* of what is not held */

enum order { ORDER_ALL, ORDER_NEWEST, ORDER_OLDEST, ORDER_RANDOM };
static const char *const order_names[] = { "all", "newest", "oldest", "random" };

struct requests {
	struct request *of[RECORDING_DEPTH];
	unsigned int count;
};

static struct {
	bool on;
	enum order order;
	u64 patience_ns;
	u64 chance;
	spinlock_t lock;
	struct requests held, done;
	struct hrtimer waits, answers;
} hold;

static int __init take_hold(char *text)
{
	char order[8];
	unsigned long long patience_ns, seed;
	unsigned int number = 0;

	/* The kernel's sscanf knows no ranges: [a-z] is these three letters. */
	if (sscanf(text, "%7[adelmnorstw]:%llu:%llu", order, &patience_ns, &seed) != 3)
		panic("powercut_hold=%s: not ORDER:NANOSECONDS:SEED", text);
	while (number < ARRAY_SIZE(order_names) && strcmp(order_names[number], order))
		number++;
	if (number == ARRAY_SIZE(order_names))
		panic("powercut_hold=%s: no such order", text);
	hold.order = number;
	hold.patience_ns = patience_ns;
	hold.chance = (seed + 1) * 0x9e3779b97f4a7c15ULL | 1;
	hold.on = true;
	return 1;
}
__setup("powercut_hold=", take_hold);

static u64 next_chance(void)
{
	hold.chance ^= hold.chance << 13;
	hold.chance ^= hold.chance >> 7;
	hold.chance ^= hold.chance << 17;
	return hold.chance >> 16;
}

static void add(struct requests *requests, struct request *rq)
{
	requests->of[requests->count++] = rq;
}

static struct request *take_at(struct requests *requests, unsigned int place)
{
	struct request *rq = requests->of[place];

	requests->count--;
	memmove(&requests->of[place], &requests->of[place + 1],
		(requests->count - place) * sizeof(rq));
	return rq;
}

static unsigned int place_of_next(void)
{
	switch (hold.order) {
	case ORDER_OLDEST:
		return 0;
	case ORDER_RANDOM:
		return next_chance() % hold.held.count;
	default:
		return hold.held.count - 1;
	}
}

/* The interrupt for what is done now comes soon. */
static void release(unsigned int count)
{
	for (; count && hold.held.count; count--)
		add(&hold.done, take_at(&hold.held, place_of_next()));
	if (hold.done.count)
		hrtimer_start(&hold.answers, ns_to_ktime(LATENCY_NS), HRTIMER_MODE_REL_HARD);
}

/* The guest waits, or many are held. */
static void release_some(void)
{
	release(hold.order == ORDER_ALL ? hold.held.count : max(hold.held.count / 2, 1U));
}

/* A flush need not cover what is still held. */
static void release_for_flush(void)
{
	if (hold.order == ORDER_ALL || hold.order == ORDER_OLDEST)
		release(hold.held.count);
	else if (hold.order == ORDER_RANDOM)
		release(next_chance() % (hold.held.count + 1));
}

static void watch(void)
{
	if (hold.held.count)
		hrtimer_start(&hold.waits, ns_to_ktime(hold.patience_ns), HRTIMER_MODE_REL_HARD);
}

static enum hrtimer_restart guest_waits(struct hrtimer *timer)
{
	unsigned long flags;

	spin_lock_irqsave(&hold.lock, flags);
	release_some();
	watch();
	spin_unlock_irqrestore(&hold.lock, flags);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart answer_all(struct hrtimer *timer)
{
	unsigned long flags;
	struct request *rq;

	for (;;) {
		spin_lock_irqsave(&hold.lock, flags);
		rq = hold.done.count ? take_at(&hold.done, 0) : NULL;
		spin_unlock_irqrestore(&hold.lock, flags);
		if (!rq)
			return HRTIMER_NORESTART;
		blk_mq_end_request(rq, BLK_STS_OK);
	}
}

/* Take over the completion of a request that succeeded. Returns false if it is to be completed at once. */
bool powercut_hold(struct request *rq)
{
	unsigned long flags;

	if (!hold.on)
		return false;
	spin_lock_irqsave(&hold.lock, flags);
	if (req_op(rq) == REQ_OP_WRITE) {
		add(&hold.held, rq);
		if (hold.held.count >= HELD_MAX)
			release_some();
	} else {
		if (req_op(rq) == REQ_OP_FLUSH)
			release_for_flush();
		add(&hold.done, rq);
		release(0);
	}
	watch();
	spin_unlock_irqrestore(&hold.lock, flags);
	return true;
}

static void __init set_up(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *))
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	timer->function = function;
#endif
}

/* Returns how many requests the disk's queue has room for. */
unsigned int __init powercut_hold_begin(void)
{
	spin_lock_init(&hold.lock);
	set_up(&hold.waits, guest_waits);
	set_up(&hold.answers, answer_all);
	return hold.on ? RECORDING_DEPTH : USUAL_DEPTH;
}

/* --- log device -------------------------------------------------------------------------- */

static char *log_path;
static u8 *log_at;

static int __init take_log(char *text)
{
	log_path = text;
	return 1;
}
__setup("powercut_log=", take_log);

static void log_bio(struct bio *bio)
{
	u8 *at = log_at + ((u64)bio->bi_iter.bi_sector << SECTOR_SHIFT);
	struct bvec_iter iter;
	struct bio_vec bvec;

	if (bio_op(bio) != REQ_OP_READ && bio_op(bio) != REQ_OP_WRITE) {
		bio_io_error(bio);
		return;
	}
	bio_for_each_segment(bvec, bio, iter) {
		u8 *data = bvec_kmap_local(&bvec);

		if (op_is_write(bio_op(bio)))
			memcpy(at, data, bvec.bv_len);
		else
			memcpy(data, at, bvec.bv_len);
		kunmap_local(data);
		at += bvec.bv_len;
	}
	bio_endio(bio);
}

static const struct block_device_operations log_operations = {
	.owner = THIS_MODULE,
	.submit_bio = log_bio,
};

static int __init powercut_log_init(void)
{
	struct queue_limits limits = { .logical_block_size = SECTOR_SIZE };
	unsigned long long bytes;
	struct gendisk *disk;
	int error = 0;

	if (!log_path)
		return 0;
	log_at = powercut_map(log_path, 1, &bytes, &error);
	if (!log_at) {
		pr_err("powercut_disk: cannot map %s: error %d of the host\n", log_path, error);
		return -ENXIO;
	}
	disk = blk_alloc_disk(&limits, NUMA_NO_NODE);
	if (IS_ERR(disk))
		return PTR_ERR(disk);
	strscpy(disk->disk_name, "powercut_log", DISK_NAME_LEN);
	disk->major = register_blkdev(0, "powercut_log");
	disk->minors = 1;
	disk->fops = &log_operations;
	set_capacity(disk, bytes >> SECTOR_SHIFT);
	error = disk->major < 0 ? disk->major : add_disk(disk);
	if (error)
		put_disk(disk);
	return error;
}
device_initcall(powercut_log_init);

#endif
