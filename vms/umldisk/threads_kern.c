// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that meet when a seed says so.
 *
 * A recording is made on one processor, in virtual time: a thread runs until it waits, and no timer fires meanwhile.
 * Wherever a kernel may wait (might_sleep, cond_resched) real ones change threads, for a timer or another processor.
 * Here a seed decides at each such point: go on (which is today's order), let another thread run that can, or be kept
 * from running for a while, as a thread of a busy host is: time passes then, and all others have their turn. Where a
 * thread waits and several others can run, it decides as well which of them does. It may also choose the threads that
 * are kept from running: one in SLOW, by their process ids. These lose every race, as if of a lower priority.
 *
 * Points are numbered from 0, and what happens at one follows from the seed and its number alone. So a schedule is
 * a seed and the numbers at which something else than the default may happen; without numbers it is all of them.
 *
 * /sys/module/powercut/parameters/threads: "SEED YIELD PICK STALL NANOSECONDS SLOW" begins, one point in YIELD, PICK
 * and STALL differs (0: none does; SLOW 0: any thread). "0" ends, and tells the kernel's log how many points there
 * were and at which of them what happened. .../only, to be written before: the numbers of points at which it may;
 * none: at all.
 *
 * The edits that call this are in vms/machines/uml.toml.
 */
#include <linux/version.h>

/* It looks into the scheduler, which changes from release to release: others have not been tried. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/rbtree.h>
#include <linux/sched.h>
#include <linux/time-internal.h>
#include "../../../kernel/sched/sched.h"

#ifdef CONFIG_UML_TIME_TRAVEL_SUPPORT

/* The edits declare them, too. */
bool powercut_point(u64 *rest, unsigned long where);
struct sched_entity *powercut_pick(struct cfs_rq *cfs_rq);

/* The harness looks for these words, and those of the edits, in the file of a kernel (harness/guests/uml.py). */
static const char decides[] __used = "powercut_threads decides 2";

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "powercut."

#define TICK_NS (NSEC_PER_SEC / HZ)
#define ONLY_MAX 512
#define MADE_MAX 64 /* of those that are told */
#define NEW_POINT (~0ULL)
#define STALLED_MAX_NS (60 * NSEC_PER_SEC) /* in all: programs have deadlines, which are of the guest's time */

struct decision {
	u32 number;
	const char *what;
	unsigned long where;
	char running[TASK_COMM_LEN], other[TASK_COMM_LEN];
};

static struct {
	bool on;
	u64 seed, stall_ns;
	u64 stalled_ns; /* so far */
	unsigned int yield, pick, stall, slow;
	u32 number; /* of the next point */
	u64 chosen; /* not 0: another thread than the running one is picked next */
	u32 only[ONLY_MAX];
	unsigned int only_count;
	struct decision made[MADE_MAX];
	unsigned int made_count;
} threads;

/* --- decisions --------------------------------------------------------------------------- */

static u64 mixed(u64 value)
{
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ value >> 27) * 0x94d049bb133111ebULL;
	return value ^ value >> 31;
}

static bool may_differ(u32 number)
{
	unsigned int i;

	for (i = 0; i < threads.only_count; i++)
		if (threads.only[i] == number)
			return true;
	return !threads.only_count;
}

/* What the seed says of the next point; 0: the default, whatever the rates. */
static u64 next_chance(void)
{
	u32 number = threads.number++;

	return may_differ(number) ? mixed(threads.seed + mixed(number + 1)) | 1 : 0;
}

static bool hits(u64 chance, unsigned int rate)
{
	return chance && rate && (u32)(chance >> 32) % rate == 0;
}

static void note(const char *what, unsigned long where, const struct task_struct *other)
{
	struct decision *made;

	if (threads.made_count++ >= MADE_MAX)
		return;
	made = &threads.made[threads.made_count - 1];
	made->number = threads.number - 1;
	made->what = what;
	made->where = where;
	memcpy(made->running, current->comm, TASK_COMM_LEN);
	memcpy(made->other, other ? other->comm : "", other ? TASK_COMM_LEN : 1);
}

/* --- who can run ------------------------------------------------------------------------- */

static struct task_struct *thread_of(struct sched_entity *entity)
{
	return container_of(entity, struct task_struct, se);
}

/* The thread of dm-log-writes is part of the recorder, and no schedule of it differs in what is recorded. */
static bool records(const struct task_struct *thread)
{
	return thread->flags & PF_KTHREAD && !strcmp(thread->comm, "log-write");
}

/* Whether it may be kept from running. */
static bool is_slow(const struct task_struct *thread)
{
	return !threads.slow || (u32)(mixed(threads.seed + thread->pid) >> 32) % threads.slow == 0;
}

/* Of those beside the running one, the one at `place`; or, with `count`, how many there are. */
static struct sched_entity *other_at(struct cfs_rq *cfs_rq, unsigned int place, unsigned int *count)
{
	struct rb_node *node;

	for (node = rb_first_cached(&cfs_rq->tasks_timeline); node; node = rb_next(node)) {
		struct sched_entity *entity = rb_entry(node, struct sched_entity, run_node);

		if (entity->sched_delayed || records(thread_of(entity)))
			continue;
		if (count)
			(*count)++;
		else if (!place--)
			return entity;
	}
	return NULL;
}

static unsigned int count_others(struct cfs_rq *cfs_rq)
{
	unsigned int count = 0;

	other_at(cfs_rq, 0, &count);
	return count;
}

static struct sched_entity *chosen_other(struct cfs_rq *cfs_rq, u64 chance)
{
	unsigned int count = count_others(cfs_rq);

	return count ? other_at(cfs_rq, (u32)(chance >> 8) % count, NULL) : NULL;
}

/* --- called by the scheduler ------------------------------------------------------------- */

/* Let time pass until another thread can run, or none is left of `rest`. */
static bool be_stalled(u64 *rest)
{
	while (*rest) {
		u64 step = min_t(u64, *rest, TICK_NS);

		*rest -= step;
		time_travel_ndelay(step);
		if (this_rq()->nr_running > 1) {
			threads.chosen = 1;
			return true;
		}
	}
	return false;
}

static bool decide(u64 *rest, unsigned long where)
{
	u64 chance = next_chance();
	struct sched_entity *other;

	*rest = 0;
	if (threads.stalled_ns < STALLED_MAX_NS && hits(mixed(chance), threads.stall) && is_slow(current)) {
		threads.stalled_ns += threads.stall_ns;
		note("is kept from running", where, NULL);
		*rest = threads.stall_ns;
		return be_stalled(rest);
	}
	other = hits(chance, threads.yield) ? chosen_other(&this_rq()->cfs, chance) : NULL;
	if (other) {
		note("lets run", where, thread_of(other));
		threads.chosen = chance;
	}
	return other;
}

/*
 * The running thread may wait here. Returns whether it has to let another one run and, when it runs again, to ask
 * again. `rest`: NEW_POINT, then how long it is still kept from running.
 */
bool powercut_point(u64 *rest, unsigned long where)
{
	if (likely(!threads.on))
		return false;
	if (preempt_count() || irqs_disabled() || current->sched_class != &fair_sched_class || records(current))
		return false;
	return *rest == NEW_POINT ? decide(rest, where) : be_stalled(rest);
}

/* Which of the threads that can run does; NULL: the default. */
struct sched_entity *powercut_pick(struct cfs_rq *cfs_rq)
{
	struct sched_entity *running = cfs_rq->curr, *picked;
	u64 chance = threads.chosen;

	if (likely(!threads.on))
		return NULL;
	threads.chosen = 0;
	if (chance)
		return chosen_other(cfs_rq, chance);
	if ((running && running->on_rq && !running->sched_delayed) || count_others(cfs_rq) < 2)
		return NULL;
	chance = next_chance();
	if (!hits(chance, threads.pick))
		return NULL;
	picked = chosen_other(cfs_rq, chance);
	note("waits, and next comes", _THIS_IP_, thread_of(picked));
	return picked;
}

/* --- parameters -------------------------------------------------------------------------- */

static void tell(void)
{
	unsigned int i;

	pr_info("powercut_threads: %u points, %u decisions\n", threads.number, threads.made_count);
	for (i = 0; i < min_t(unsigned int, threads.made_count, MADE_MAX); i++) {
		struct decision *made = &threads.made[i];

		pr_info("powercut_threads: %u: %s %s%s%s in %ps\n", made->number, made->running, made->what,
			*made->other ? " " : "", made->other, (void *)made->where);
	}
}

static int begin_or_end(const char *text, const struct kernel_param *of)
{
	unsigned long long seed = 0, stall_ns = 0;
	unsigned int yield = 0, pick = 0, stall = 0, slow = 0;
	int count = sscanf(text, "%llu %u %u %u %llu %u", &seed, &yield, &pick, &stall, &stall_ns, &slow);

	if (threads.on)
		tell();
	threads.on = false;
	if (count != 6)
		return count == 1 && !seed ? 0 : -EINVAL;
	if (time_travel_mode != TT_MODE_INFCPU)
		return -EOPNOTSUPP;
	threads.seed = mixed(seed + 1);
	threads.yield = yield;
	threads.pick = pick;
	threads.stall = stall;
	threads.slow = slow;
	threads.stall_ns = stall_ns;
	threads.number = threads.chosen = threads.made_count = threads.stalled_ns = 0;
	threads.on = true;
	return 0;
}

static int take_only(const char *text, const struct kernel_param *of)
{
	int taken;

	threads.only_count = 0;
	while (sscanf(text, "%u%n", &threads.only[threads.only_count], &taken) == 1) {
		if (++threads.only_count == ONLY_MAX)
			return -E2BIG;
		text += taken;
	}
	return 0;
}

static const struct kernel_param_ops threads_ops = { .set = begin_or_end };
static const struct kernel_param_ops only_ops = { .set = take_only };
module_param_cb(threads, &threads_ops, NULL, 0200);
module_param_cb(only, &only_ops, NULL, 0200);

#endif
#endif
