# For run and check: a server on the files in the current directory, reached by a socket outside of them.
socket=/tmp/redis.sock

# start APPENDFSYNC: returns once it answers; what it says is in /tmp/redis.log.
start() {
	rm -f "$socket"
	ln -sf "$(command -v redis-check-rdb)" /tmp/redis-server # what it does depends on its name
	/tmp/redis-server --port 0 --unixsocket "$socket" --save "" --daemonize no --logfile /tmp/redis.log \
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
