# Shared by the scripts: starting a daemon, and waiting for what should come true.
# Sourced, never run. It wants a folder of the caller in $work, and ends what it started when the caller exits.
# shellcheck shell=bash

pids=()
stop_all() {
  local status=$? pid
  set +e # one that is gone already must not keep the others alive
  for pid in "${pids[@]}"; do
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
  done
  rm -rf "$work"
  exit "$status"
}
trap stop_all EXIT
trap 'exit 130' INT TERM

die() { printf '\nFAILED: %s\n' "$*" >&2; exit 1; }

# until_true SECONDS WHAT COMMAND… runs COMMAND again and again until it succeeds.
until_true() {
  local seconds=$1 what=$2
  shift 2
  local deadline=$((SECONDS + seconds))
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || die "waited ${seconds} s for ${what}"
    sleep 0.1
  done
}

# start NAME [FLAG…] starts a daemon on free ports of this machine's loopback address, and sets
# origin, peer and pid to what it printed. Its output is in $work/NAME.out and $work/NAME.log.
start() {
  local name=$1
  shift
  ./witan serve --data "$work/$name" --listen 127.0.0.1:0 --p2p-listen /ip4/127.0.0.1/tcp/0 --allow-private-addresses "$@" \
    >"$work/$name.out" 2>"$work/$name.log" &
  pid=$!
  pids+=("$pid")
  until_true 30 "the daemon $name to start" started "$name" "$pid"
  origin=$(sed -n 's/^ *address  *//p' "$work/$name.out")
  # shellcheck disable=SC2034 # read by the caller
  peer=$(sed -n 's/^ *peer  *//p' "$work/$name.out")
}

started() {
  grep -q '^Stop with' "$work/$1.out" && return
  kill -0 "$2" 2>/dev/null || die "the daemon $1 ended at once: $(tail -n 5 "$work/$1.log")"
  return 1
}
