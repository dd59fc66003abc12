// jbd2: a journal commits one transaction at a time, so one record a device is enough.
struct commit {
	u64 begun_ns[4];   // start, locking, flushing, logging
	u32 transaction;
	u32 handles, blocks, logged;
};
BPF_ARRAY(commit, struct commit, 1);

static inline struct commit *on_disk(u32 dev)
{
	int zero = 0;

	return dev == DISK ? commit.lookup(&zero) : 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_start_commit)
{
	struct commit *c = on_disk(args->dev);

	if (c) {
		__builtin_memset(c, 0, sizeof(*c));
		c->transaction = args->transaction;
		c->begun_ns[0] = bpf_ktime_get_ns();
	}
	return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_commit_locking)
{
	struct commit *c = on_disk(args->dev);

	if (c)
		c->begun_ns[1] = bpf_ktime_get_ns();
	return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_commit_flushing)
{
	struct commit *c = on_disk(args->dev);

	if (c)
		c->begun_ns[2] = bpf_ktime_get_ns();
	return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_commit_logging)
{
	struct commit *c = on_disk(args->dev);

	if (c)
		c->begun_ns[3] = bpf_ktime_get_ns();
	return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_run_stats)
{
	struct commit *c = on_disk(args->dev);

	if (c) {
		c->handles = args->handle_count;
		c->blocks = args->blocks;
		c->logged = args->blocks_logged;
	}
	return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_end_commit)
{
	struct commit *c = on_disk(args->dev);
	u64 now = bpf_ktime_get_ns();
	struct record r = {};

	// One that had begun before the probes were there is no whole one.
	if (!c || c->transaction != args->transaction || !c->begun_ns[1] || !c->begun_ns[2] || !c->begun_ns[3])
		return 0;
	r.kind = COMMIT;
	r.at_ns = c->begun_ns[0];
	r.took_ns[0] = c->begun_ns[1] - c->begun_ns[0];
	r.took_ns[1] = c->begun_ns[2] - c->begun_ns[1];
	r.took_ns[2] = c->begun_ns[3] - c->begun_ns[2];
	r.took_ns[3] = now - c->begun_ns[3];
	r.number = c->transaction;
	r.counts[0] = args->sync_commit;
	r.counts[1] = c->handles;
	r.counts[2] = c->blocks;
	r.counts[3] = c->logged;
	tell(&r);
	return 0;
}

TRACEPOINT_PROBE(jbd2, jbd2_checkpoint_stats)
{
	struct record r = {};

	if (args->dev != DISK)
		return 0;
	r.kind = CHECKPOINT;
	r.at_ns = bpf_ktime_get_ns();
	r.number = args->tid;
	r.counts[0] = args->chp_time * 1000 / HERTZ;
	r.counts[1] = args->written;
	r.counts[2] = args->dropped;
	r.counts[3] = args->forced_to_close;
	tell(&r);
	return 0;
}
