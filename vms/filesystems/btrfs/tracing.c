// btrfs tells the end of a transaction's commit and not its beginning: counted, not timed.
TRACEPOINT_PROBE(btrfs, btrfs_transaction_commit)
{
	struct record r = {};

	r.kind = TRANSACTION;
	r.at_ns = bpf_ktime_get_ns();
	r.number = args->generation;
	tell(&r);
	return 0;
}
