#!/usr/bin/env bash
# The main job in one minute, on loopback, in a temporary folder: daemon A hosts a room, daemon B mirrors,
# indexes and attests it, then A is stopped and the room is still there; then A comes back from an older copy of
# its disk and tells another story, and is caught. Exits 0 only when all of it happened. With DEMO_STAY=1 the daemons run on until Enter.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x ./witan ] || { echo "build first: make build" >&2; exit 1; }

work=$(mktemp -d)
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
unset "${!WITAN_@}" # no settings of this machine

number=0
step() { number=$((number + 1)); printf '\n%d. %s\n\n' "$number" "$*"; }
show() { sed 's/^/   /'; }
as() { local who=$1; shift; ./witan "$@" --key "$work/$who.key" 2>>"$work/client.log" || die "$who: witan $*: $(tail -n 3 "$work/client.log")"; }
has() { local pattern=$1; shift; "$@" 2>/dev/null | grep -Eq -- "$pattern"; }
fetch_archive() { rm -f "$work/archive.jsonl"; ./witan room archive "$room" -o "$work/archive.jsonl" >"$work/said" 2>>"$work/client.log"; }
hash_of() { sed -n 's/^seq [0-9]*  //p' <<<"$1"; }

step "Two daemons: A hosts rooms, B mirrors A"
start A
A=$origin pid_a=$pid peer_a=$peer
start B --mirror "$A" --peer "$peer"
B=$origin
copy=$B/m/${A#*://} # what B holds of A, under the same read API
printf '   A  %s\n   B  %s\n' "$A" "$B"
until_true "B to follow A" has "$A +following" ./witan mirror list --host "$B"

step "Ada opens a room on A; Ben and Cyd join it"
as ada room create --host "$A" --topic "Where does the second copy go?" --agenda "One place, one keeper, today." \
  --tag federation --language en --use deliberation --use reactions >"$work/room"
show <"$work/room"
id=$(sed -n 's/^id *//p' "$work/room")
room=$A/v1/rooms/$id
for who in ben cyd; do as "$who" room join "$room" --role speaker --perspective "$who, an archivist" >"$work/join"; done

step "They discuss on A, while a reader follows on B; every record is checked on its way"
until_true "B to hold the room" has "$id" ./witan room list --host "$copy"
./witan room watch "$copy/v1/rooms/$id" --after 3 --count 5 >"$work/watch" 2>>"$work/client.log" &
reader=$!
asked=$(as ada room say "$room" "Whoever keeps the only copy can change the story. Where does ours go?")
as ben room say "$room" --reply "$(hash_of "$asked")" "To a host run by somebody else, who checks each record by itself." >"$work/said"
printf '{"proposal_id":"p1","title":"Mirror to B","body":"B keeps a verified copy of every public room."}' >"$work/proposal.json"
proposed=$(as cyd room send "$room" proposal.create "$work/proposal.json")
for who in ada ben; do
  printf '{"event_id":"%s","reaction":"agree","score":1}' "$(hash_of "$proposed")" >"$work/reaction.json"
  as "$who" room send "$room" reaction.create "$work/reaction.json" >"$work/said"
done
until_true "the reader on B to see five records" has_ended "$reader"
wait "$reader" || die "the reader on B: $(tail -n 3 "$work/client.log")"
show <"$work/watch"

step "B's index finds the room"
until_true "the index of B" has "verified +8 .*$room\$" ./witan index search --host "$B" second copy
./witan index search --host "$B" second copy | show

step "Ada closes the room; A makes its archive, anybody may take it along and verify it"
as ada room close "$room" --reason "Decided: a mirror at B." >"$work/said"
until_true "the archive of A" fetch_archive
./witan verify "$work/archive.jsonl" >"$work/report" || die "the archive does not verify: $(cat "$work/report")"
grep -E '^(verified|topic|records|judged|root|events CID|bundle CID)' "$work/report" | show

step "A signed a statement about it; B recomputed everything and signed an attestation; both show it"
for host in "$B" "$A"; do
  until_true "the attestation at $host" has '"statement":"[A-Za-z0-9_-]{43}"' ./witan attestations --host "$host" --origin "$A" --room "$id" --json
done
./witan attestations --host "$A" --origin "$A" --room "$id" >"$work/attested" || die "an attestation does not verify: $(cat "$work/attested")"
show <"$work/attested"

step "A is stopped"
until_true "B to hold the archive" has '^verified$' ./witan verify --quiet "$copy/v1/rooms/$id"
kill -TERM "$pid_a"
wait "$pid_a" || die "A did not stop in order: exit $?"
if ./witan room show "$room" >"$work/said" 2>&1; then die "A still answers"; fi
show <"$work/said"

step "The room is still there, on B, to the last record"
./witan room history "$copy/v1/rooms/$id" >"$work/history" || die "the history on B does not verify"
[ "$(grep -c '^[0-9]' "$work/history")" = 9 ] || die "B does not hold nine records: $(cat "$work/history")"
tail -n 3 "$work/history" | show
./witan verify "$copy/v1/rooms/$id" >"$work/again" || die "B's copy does not verify: $(cat "$work/again")"
printf '\n'
grep -E '^(verified|source|records|root)' "$work/again" | show
same() {
  local line
  line=$(grep "^$1 " "$work/report") || die "A's archive has no $1"
  grep -qxF -- "$line" "$work/again" || die "the copies differ in $1"
}
same root
same 'bundle CID'

# restart A at the address that it had
back() {
  start A --listen "${A#*://}" --p2p-listen "${peer_a%/p2p/*}"
  pid_a=$pid
  ./witan mirror retry "$A" --data "$work/B" >"$work/said" 2>>"$work/client.log" || die "witan mirror retry: $(tail -n 3 "$work/client.log")"
}
stop_a() { kill -TERM "$pid_a"; wait "$pid_a" || die "A did not stop in order: exit $?"; }
now_ms() { node -p 'Date.now()' 2>/dev/null || date +%s%3N; }
records_on_b() { [ "$(./witan room history "$copy/v1/rooms/$second" --json 2>/dev/null | wc -l)" = "$1" ]; }
# forked, by what B saw; equivocated as soon as B holds two heads that A signed, which prove it
caught() { has "^active +(forked|equivocated) .*/$second\$" ./witan index search --host "$B" what if backups; }

step "A is back; what is said there is read on B at once (the start of both programs included)"
back
as ada room create --host "$A" --topic "What if backups talk?" >"$work/room"
second=$(sed -n 's/^id *//p' "$work/room")
until_true "B to find A again" records_on_b 1
for n in 2 3 4; do
  ./witan room watch "$copy/v1/rooms/$second" --after $((n - 1)) --count 1 >"$work/watch" 2>>"$work/client.log" &
  reader=$!
  before=$(now_ms)
  as ada room say "$A/v1/rooms/$second" "number $n" >"$work/said"
  wait "$reader" || die "the reader on B: $(tail -n 3 "$work/client.log")"
  printf '   seq %d after %d ms\n' "$n" "$(($(now_ms) - before))"
done

step "A loses its disk, comes back from an older copy, and goes on with another story"
stop_a
cp -r "$work/A" "$work/copy"
back
as ada room say "$A/v1/rooms/$second" "the story that everybody read" >"$work/said"
until_true "B to hold five records" records_on_b 5
stop_a
rm -rf "$work/A"
mv "$work/copy" "$work/A"
back
for words in "another story" "and more of it"; do as ada room say "$A/v1/rooms/$second" "$words" >"$work/said"; done
until_true "B to see the fork" caught
./witan index search --host "$B" what if backups | show
printf '\n'
./witan room history "$copy/v1/rooms/$second" --after 4 >"$work/history" || die "the history on B does not verify"
show <"$work/history"
grep -q "the story that everybody read" "$work/history" || die "B forgot the first story"

step "People read it in a browser: B's page of the first room"
page=$B/rooms/${A#*://}/$id
page_on_b() ( # what a browser gets
  host=${B#*://}
  exec 3<>"/dev/tcp/${host%:*}/${host##*:}"
  printf 'GET %s HTTP/1.0\r\nHost: %s\r\nAccept: text/html\r\n\r\n' "${page#"$B"}" "$host" >&3
  cat <&3
)
has "Whoever keeps the only copy can change the story" page_on_b || die "there is no page at $page"
printf '   It is there, and says how to check it.\n'

printf '\nDone in %d s: hosted, mirrored, verified, indexed, attested, survived its host, and caught it with two stories.\n' "$SECONDS"
if [ -n "${DEMO_STAY:-}" ]; then
  printf 'Open the page; Enter stops both daemons:\n%s\n' "$page"
  read -r _ || true
else
  printf 'The page of the room (DEMO_STAY=1 make demo lets the daemons run until you have looked at it):\n%s\n' "$page"
fi
