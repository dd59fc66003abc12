// XFS: a write of the log, from its in-core buffer's hand-over to the disk until it is there. Log sequence
// numbers never repeat; the highest bit keeps them apart from the keys of others.
TRACEPOINT_PROBE(xfs, xlog_iclog_syncing)
{
	if (args->dev == DISK)
		begin(1ULL << 63 | args->lsn);
	return 0;
}

TRACEPOINT_PROBE(xfs, xlog_iclog_sync_done)
{
	if (args->dev == DISK)
		end(1ULL << 63 | args->lsn, LOG_WRITE);
	return 0;
}
