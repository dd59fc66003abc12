# For run and check: a server on the files in the current directory, reached by a socket outside of them.
scratch=${TMPDIR:-/tmp}
socket=$scratch/redis.sock
log=$scratch/redis.log

# start APPENDFSYNC: returns once it answers; what it says is in $log.
start() {
	rm -f "$socket"
	: >"$log"
	ln -sf "$(command -v redis-check-rdb)" "$scratch/redis-server" # what it does depends on its name
	"$scratch/redis-server" --port 0 --unixsocket "$socket" --save "" --daemonize no --logfile "$log" \
		--appendonly yes --appendfsync "$1" --auto-aof-rewrite-percentage 0 >/dev/null 2>&1 &
	server=$!
	until [ "$(client PING 2>/dev/null)" = PONG ]; do
		kill -0 "$server" 2>/dev/null || return 1
		usleep 20000
	done
}

client() {
	redis-cli -s "$socket" "$@"
}
