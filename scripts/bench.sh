#!/usr/bin/env bash
# The gates of speed, each a ratio of two things measured in the same run, since absolute times say more about
# the machine than about the code. ROUNDS (default 3) runs are interleaved; the median of each counts.
# RECORDS (100000) is how long the room of the mirror's gate is. SCALE (full: 1,000 hosts of 20 rooms; part: some of them)
# is how many hosts are followed at the end. ROOMS (1000000) is how large the index grows. ALL=1 runs every other Go
# benchmark after them. Run it on a quiet machine; a MISS is a note, not an error.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C # numbers with a point, for awk

rounds=${ROUNDS:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

go test -c -o "$work/adp.test" ./adp
go test -c -o "$work/store.test" ./internal/store
go test -c -o "$work/replica.test" ./internal/replica
go test -c -o "$work/mirror.test" ./mirror
go test -c -o "$work/index.test" ./index
adp() { (cd adp && "$work/adp.test" -test.run '^$' "$@"); }
store() { (cd internal/store && "$work/store.test" -test.run '^$' "$@"); }
replica() { (cd internal/replica && "$work/replica.test" -test.run '^$' "$@"); }
mirror() { (cd mirror && BENCH_RECORDS=${RECORDS:-100000} "$work/mirror.test" -test.run '^$' "$@"); }

for round in $(seq "$rounds"); do
  printf 'round %d of %d\n' "$round" "$rounds" >&2
  adp -test.cpu 1 -test.bench '^BenchmarkRatios$'
  adp -test.cpu 1,2 -test.bench '^BenchmarkVerifyRecordParallel$'
  store -test.cpu 2 -test.bench '^(BenchmarkAppendOneByOne|BenchmarkAppend64Writers|BenchmarkRawFile64)$'
  replica -test.cpu 2 -test.bench '^BenchmarkHistory$'
  replica -test.cpu 2 -test.benchtime 5x -test.bench '^BenchmarkStreams$'
  mirror -test.cpu 2 -test.benchtime 1x -test.bench '^(BenchmarkSync|BenchmarkVerify)$'
done >"$work/out"

awk -v rounds="$rounds" '
  # median of the value that stands before a unit in the lines of one benchmark
  function median(bench, unit,    i, j, n, t, v) {
    n = count[bench, unit]
    if (n != rounds) { printf "no result for %s %s\n", bench, unit; bad = 1; exit }
    for (i = 1; i <= n; i++) v[i] = value[bench, unit, i]
    for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j-1]; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t }
    return n % 2 ? v[(n+1)/2] : (v[n/2] + v[n/2+1]) / 2
  }
  function gate(what, got, sign, limit,    ok) {
    ok = sign == "<=" ? got <= limit : got >= limit
    if (!ok) missed++
    printf "%-62s %7.2f  %s %-5s %s\n", what, got, sign, limit, ok ? "PASS" : "MISS"
  }
  /^Benchmark/ {
    name = $1 # ends in -2 when it ran on two cores
    sub(/^Benchmark/, "", name)
    for (i = 3; i < NF; i += 2) value[name, $(i+1), ++count[name, $(i+1)]] = $i
  }
  END {
    printf "\n%-62s %7s  %-8s\n", "gate", "ratio", "limit"
    gate("full verify of a record / bare Ed25519 verify", median("Ratios", "full/bare"), "<=", 0.70)
    gate("all but the signature / bare Ed25519 verify", median("Ratios", "nosig/bare"), "<=", 0.15)
    gate("two cores / one core, full verify", median("VerifyRecordParallel", "ns/op") / median("VerifyRecordParallel-2", "ns/op"), ">=", 1.8)
    one = median("AppendOneByOne-2", "records/s"); many = median("Append64Writers-2", "records/s")
    gate("durable append, 64 writers / one by one", many / one, ">=", 10)
    gate("durable append, 64 writers / the raw file", many / median("RawFile64-2", "records/s"), ">=", 0.4)
    sync = median("Sync-2", "records/s")
    gate("sync of a long room from loopback / verify of its records", sync / median("Verify-2", "records/s"), ">=", 0.7)
    gate("live streams to 2,000 readers / a channel and an encoding each", median("Streams/shared-2", "deliveries/s") / median("Streams/naive-2", "deliveries/s"), ">=", 5)
    gate("memory of a live stream at rest, KiB", median("Streams/shared-2", "KiB/reader"), "<=", 30)
    page = median("History/ServeEvents-2", "records/s")
    gate("pages of history served / scanned", page / median("History/Scan1000-2", "records/s"), ">=", 0.5)
    printf "\nfor the record: all but the signature, members shuffled: %.2f of a bare verify\n", median("Ratios", "shuffled/bare")
    printf "durable appends: %d/s one by one, %d/s with 64 writers; a bare verify is the unit of the first two lines\n", one, many
    printf "mirror: %d records/s synced; history: %d records/s served in pages of 1,000\n", sync, page
    printf "live streams: %d records/s delivered to 2,000 readers\n", median("Streams/shared-2", "deliveries/s")
    if (missed) printf "%d missed: other work on the machine moves these numbers; run it again alone before believing it\n", missed
    exit bad
  }' "$work/out"

printf '\nmany hosts at once, and the time from a host to its mirror:\n'
(cd mirror && WITAN_SCALE=${SCALE:-full} "$work/mirror.test" -test.v -test.run '^(TestScale|TestRelayLatency)$') |
  sed -n 's/^ *[a-z_]*_test\.go:[0-9]*: //p; /^--- FAIL/p'

printf '\nthe index, from 10k rooms to %s (ROOMS):\n' "${ROOMS:-1000000}"
(cd index && BENCH_ROOMS=${ROOMS:-1000000} "$work/index.test" -test.run '^$' -test.cpu 2 -test.benchtime 20x -test.bench '^BenchmarkIndex$') |
  awk '
  # the median of what is in v[1..n]
  function median(v, n,    i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j-1]; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t }
    return n % 2 ? v[(n+1)/2] : (v[n/2] + v[n/2+1]) / 2
  }
  function gate(what, got, unit, limit) { printf "%-62s %9.2f %-4s <= %-5s %s\n", what, got, unit, limit, got <= limit ? "PASS" : "MISS" }
  function flush(    i) {
    if (size == "") return
    if (!plains || !rare || !searchable) { printf "no result for %s rooms\n", size; bad = 1; exit }
    gate(size " rooms, median of queries without words", median(plain, plains), "ms", 5)
    gate(size " rooms, slowest query for a rare word", rare, "ms", 50)
    gate(size " rooms, memory of the columns", columns, "MiB", 400)
    gate(size " rooms, a changed text until it is searchable", 200 + searchable, "ms", 2000)
    printf "  of them: %s\n", said
  }
  /^BenchmarkIndex\// && $4 == "ns/op" {
    split($1, part, "/"); sub(/-[0-9]+$/, "", part[3])
    if (part[2] != size) { flush(); size = part[2]; plains = rare = 0; said = "" }
    ms = $3 / 1e6
    if (part[3] == "columns") { columns = $5; said = sprintf("%s MiB of documents", $7); next }
    if (part[3] == "searchable") { searchable = ms; next }
    if (part[3] ~ /^q=(rare|none)/) { if (ms > rare) rare = ms }
    else if (part[3] !~ /^(q=|keyword)/) plain[++plains] = ms
    said = said sprintf(", %s %.2f ms", part[3], ms)
  }
  END { if (!bad) flush(); exit bad || size == "" }'

if [ -n "${ALL:-}" ]; then
  printf '\n'
  go test -run '^$' -bench . ./...
fi
