# For run and check: PostgreSQL of the newest release that there is, and its settings.
for programs in /usr/lib/postgresql/*/bin; do :; done
scratch=${TMPDIR:-/tmp}
export PATH="$programs:$PATH" PGUSER=postgres PGHOST="$scratch" PGDATABASE=template1
cluster=$PWD/cluster
log=$scratch/postgresql.log

# alone OPTION...: without a server, one command on each line of standard input
alone() {
	postgres --single -D "$cluster" -c log_line_prefix= "$@" template1
}
