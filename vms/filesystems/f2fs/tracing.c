// f2fs: a checkpoint. Its tracepoint names the stage: "start block_ops", "finish block_ops",
// "start checkpoint", "finish checkpoint" (fs/f2fs/checkpoint.c).
TRACEPOINT_PROBE(f2fs, f2fs_write_checkpoint)
{
	char stage[8] = {};

	if (args->dev != DISK)
		return 0;
	TP_DATA_LOC_READ_CONST(stage, dest_msg, 8);
	if (stage[0] == 's' && stage[6] == 'b')
		begin(1ULL << 62);
	else if (stage[0] == 'f' && stage[7] == 'c')
		end(1ULL << 62, F2FS_CHECKPOINT);
	return 0;
}

TRACEPOINT_PROBE(f2fs, f2fs_sync_file_enter)
{
	if (args->dev == DISK)
		begin(bpf_get_current_pid_tgid());
	return 0;
}

TRACEPOINT_PROBE(f2fs, f2fs_sync_file_exit)
{
	if (args->dev == DISK)
		end(bpf_get_current_pid_tgid(), FSYNC);
	return 0;
}
