# Shared by the scripts: starting a daemon, and waiting for what should come true.
# Sourced, never run. It wants a folder of the caller in $work, and ends what it started when the caller exits.
# shellcheck shell=bash

export LC_ALL=C # what programs print is read here, by its bytes

patience=180 # seconds for whatever must come: longer than an overloaded machine takes

stop_all() {
  local status=$? pid
  set +e # one that is gone already must not keep the others alive
  for pid in $(jobs -pr); do # those that run: the number of one that has ended may be another program's by now
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
  done
  rm -rf "$work"
  exit "$status"
}
trap stop_all EXIT
trap 'exit 130' INT TERM

die() { printf '\nFAILED: %s\n' "$*" >&2; exit 1; }

# until_true WHAT COMMAND… runs COMMAND again and again until it succeeds.
until_true() {
  local what=$1 deadline=$((SECONDS + patience))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || die "waited ${patience} s for ${what}"
    sleep 0.1
  done
}

# start NAME [FLAG…] starts a daemon on free ports of this machine's loopback address, and sets
# origin, peer and pid to what it printed. Its output is in $work/NAME.out and $work/NAME.log.
# A port that a flag asks for can be somebody else's for a moment: it is waited for.
start() {
  until_true "the ports of the daemon $1 to be free" begin "$@"
  origin=$(sed -n 's/^ *address  *//p' "$work/$1.out")
  # shellcheck disable=SC2034 # read by the caller
  peer=$(sed -n 's/^ *peer  *//p' "$work/$1.out")
}

# begin starts a daemon once, and fails when a port is not free.
begin() {
  local name=$1
  shift
  rm -f "$work/$name.out" "$work/$name.log" # of the time before: the shell that starts it may come late to empty them
  ( # with no settings of this machine, and in a temporary folder however small
    unset "${!WITAN_@}"
    WITAN_MIN_FREE_DISK=0 exec ./witan serve --data "$work/$name" --listen 127.0.0.1:0 --p2p-listen /ip4/127.0.0.1/tcp/0 --allow-private-addresses "$@"
  ) >"$work/$name.out" 2>"$work/$name.log" &
  pid=$!
  until_true "the daemon $name to start" started_or_ended "$name" "$pid"
  started "$name" && return
  grep -q 'address already in use' "$work/$name.log" && return 1
  die "the daemon $name ended at once: $(tail -n 5 "$work/$name.log")"
}

started() { grep -qs '^Stop with' "$work/$1.out"; }
has_ended() { ! kill -0 "$1" 2>/dev/null; }
started_or_ended() { started "$1" || has_ended "$2"; }
