// fsync(2) and fdatasync(2) as programs see them: for file systems that have no events of their own for it.
TRACEPOINT_PROBE(syscalls, sys_enter_fsync) { begin(bpf_get_current_pid_tgid()); return 0; }
TRACEPOINT_PROBE(syscalls, sys_exit_fsync) { end(bpf_get_current_pid_tgid(), FSYNC); return 0; }
TRACEPOINT_PROBE(syscalls, sys_enter_fdatasync) { begin(bpf_get_current_pid_tgid()); return 0; }
TRACEPOINT_PROBE(syscalls, sys_exit_fdatasync) { end(bpf_get_current_pid_tgid(), FSYNC); return 0; }
