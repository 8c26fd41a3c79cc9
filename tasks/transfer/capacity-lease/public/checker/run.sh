#!/bin/sh
# Check the workspace as the delivery gate does: a fresh PostgreSQL, migrate, API, public checker; everything is ended again.
# Run it in the workspace after `npm ci` and `npm run build`:  sh checker/run.sh
set -eu
cd "$(dirname "$0")/.."
for folder in /usr/lib/postgresql/*/bin; do [ -d "$folder" ] && PATH="$folder:$PATH"; done
scratch=$(mktemp -d)
api=
finish() {
    [ -z "$api" ] || kill -TERM "$api" 2>/dev/null || true
    [ -z "$api" ] || wait "$api" 2>/dev/null || true
    pg_ctl -D "$scratch/data" -m immediate -s stop 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT INT TERM

free_port() { node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})'; }
database_port=$(free_port)
initdb -D "$scratch/data" -U checker -A trust >"$scratch/initdb.log"
pg_ctl -D "$scratch/data" -l "$scratch/postgres.log" -o "-h 127.0.0.1 -p $database_port -k $scratch" -w -s start
createdb -h 127.0.0.1 -p "$database_port" -U checker checker

export DATABASE_URL="postgres://checker@127.0.0.1:$database_port/checker"
HOST=127.0.0.1 PORT=$(free_port) ADMIN_TOKEN=checker-admin-token
export HOST PORT ADMIN_TOKEN
npm run --silent migrate
npm run --silent start:api >"$scratch/api.log" 2>&1 &
api=$!
tries=0
until node -e "fetch('http://127.0.0.1:$PORT/healthz').then(r=>process.exit(r.ok?0:1),()=>process.exit(1))"; do
    tries=$((tries + 1))
    if [ "$tries" -ge 60 ] || ! kill -0 "$api" 2>/dev/null; then
        echo "the API did not answer /healthz in time; its log:" >&2
        tail -n 40 "$scratch/api.log" >&2
        exit 1
    fi
    sleep 0.5
done
node checker/check.mjs --url "http://127.0.0.1:$PORT" --admin-token "$ADMIN_TOKEN" "$@"
