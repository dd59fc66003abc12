// Things that begin at one event and end at another, known again by a key.
BPF_HASH(begun, u64, u64);

static inline void begin(u64 key)
{
	u64 now = bpf_ktime_get_ns();

	begun.update(&key, &now);
}

static inline void end(u64 key, u32 kind)
{
	u64 *since = begun.lookup(&key);
	struct record r = {};

	if (!since)
		return;
	r.kind = kind;
	r.at_ns = *since;
	r.took_ns[0] = bpf_ktime_get_ns() - *since;
	begun.delete(&key);
	tell(&r);
}
