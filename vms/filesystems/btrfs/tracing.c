// btrfs has an event for the end of a commit and none for its start: commits are counted, not timed.
TRACEPOINT_PROBE(btrfs, btrfs_transaction_commit)
{
	struct record r = {};

	r.kind = TRANSACTION;
	r.at_ns = bpf_ktime_get_ns();
	r.number = args->generation;
	tell(&r);
	return 0;
}
