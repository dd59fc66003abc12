// fsync(2) and fdatasync(2) of ext4, in the file system: to trace the system calls themselves would slow down
// every system call of every process (SYSCALL_WORK_SYSCALL_TRACEPOINT).
TRACEPOINT_PROBE(ext4, ext4_sync_file_enter)
{
	if (args->dev == DISK)
		begin(bpf_get_current_pid_tgid());
	return 0;
}

TRACEPOINT_PROBE(ext4, ext4_sync_file_exit)
{
	if (args->dev == DISK)
		end(bpf_get_current_pid_tgid(), FSYNC);
	return 0;
}
