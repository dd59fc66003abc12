# For run and check: PostgreSQL of the newest release that there is, and its settings.
for programs in /usr/lib/postgresql/*/bin; do :; done
export PATH="$programs:$PATH" PGUSER=postgres PGHOST=/tmp PGDATABASE=template1
cluster=$PWD/cluster
log=/tmp/postgresql.log

# alone OPTION...: without a server, one command on each line of standard input
alone() {
	postgres --single -D "$cluster" -c log_line_prefix= "$@" template1
}
