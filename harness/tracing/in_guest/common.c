// What every program of probes begins with. One record goes out for each thing that has ended; whatever it
// takes to know its beginning stays in the kernel.

// Named by the formats of tracepoints, which bcc turns into structs without jbd2's own headers.
typedef u32 tid_t;

// COMMIT, CHECKPOINT, FSYNC and the kinds of each file system are numbered by the host: harness/tracing/probes.py.

struct record {
	u64 at_ns;         // when it began; CLOCK_MONOTONIC
	u64 took_ns[4];    // COMMIT: its phases in order; else the first, or 0 where it cannot be known
	u32 kind;
	u32 number;        // of the transaction, where there is one
	u32 counts[4];     // COMMIT: asked for, handles, blocks, blocks logged; CHECKPOINT: ms, written, dropped, forced
};

BPF_RINGBUF_OUTPUT(records, 4096);  // pages: room for 190,000 records
BPF_ARRAY(lost, u64, 1);

// No wake-up: the reader comes when it is asked to, so that it costs the workload nothing.
static inline void tell(struct record *r)
{
	int zero = 0;

	if (records.ringbuf_output(r, sizeof(*r), BPF_RB_NO_WAKEUP)) {
		u64 *count = lost.lookup(&zero);

		if (count)
			__sync_fetch_and_add(count, 1);
	}
}
