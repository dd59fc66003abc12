// XFS: a log write, from the submission of its in-core buffer to its completion. Log sequence numbers never
// repeat; the highest bit separates them from other keys.
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
