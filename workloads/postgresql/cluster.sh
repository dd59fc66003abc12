# For run, check and prepare: PostgreSQL of the newest release that there is, and its settings.
for programs in /usr/lib/postgresql/*/bin; do :; done
scratch=${TMPDIR:-/tmp}
export PATH="$programs:$PATH" PGUSER=postgres PGHOST="$scratch" PGDATABASE=template1
cluster=$PWD/cluster
log=$scratch/postgresql.log

# alone OPTION...: without a server, one command on each line of standard input
alone() {
	postgres --single -D "$cluster" -c log_line_prefix= "$@" template1
}

# The cluster is made in memory, as small as it can be: every crash state is walked and copied.
make_cluster() {
	cluster=$scratch/cluster
	TZ=GMT initdb -D "$cluster" -U postgres -A trust -E UTF8 --locale=C --no-sync --data-checksums --wal-segsize=1 &&
		cat >>"$cluster/postgresql.conf" <<-EOF &&
			min_wal_size = 2MB
			max_wal_size = 3MB
			shared_buffers = 1MB
			autovacuum = off
			dynamic_shared_memory_type = mmap
			wal_writer_delay = 100ms
			log_line_prefix = ''
		EOF
		alone -F <<-EOF &&
			UPDATE pg_database SET datistemplate = false WHERE datname = 'template0'
			DROP DATABASE template0
			DROP DATABASE postgres
			CREATE EXTENSION amcheck
			CREATE TABLE account(id integer PRIMARY KEY, balance integer)
			CREATE TABLE entry(k integer, part integer, text text, PRIMARY KEY (k, part))
			INSERT INTO account VALUES (1, 1000), (2, 0)
		EOF
		pg_resetwal -D "$cluster"
}
