# Makes the database at the first start, then becomes the server.
set -euo pipefail
export PGDATA=/var/lib/postgresql/data
export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
if [[ ! -s $PGDATA/PG_VERSION ]]; then
    initdb --username "$POSTGRES_USER" --pwfile <(printf %s "$POSTGRES_PASSWORD") --auth scram-sha-256 --encoding UTF8 >/dev/null
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    pg_ctl --silent --wait --options "-c listen_addresses='' -c unix_socket_directories=/var/run/postgresql" start
    PGPASSWORD=$POSTGRES_PASSWORD createdb --username "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --silent --wait --mode fast stop
fi
exec postgres -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql
