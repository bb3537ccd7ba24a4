#!/usr/bin/env bash
# A mirror and twenty hosts that die, stall, lie and come back at random, for SOAK (10m). At the end every honest
# record must be held, every lie be named, and no goroutine, open file or memory be left behind. SOAK_SEED plays a
# course of events again; the first line of the output names it.
set -euo pipefail
cd "$(dirname "$0")/.."

SOAK=${SOAK:-10m} go test -count 1 -timeout 0 -v -run '^TestSoak$' "$@" ./mirror
# Thirty witnesses that stop, start and are cut off from each other: in the end all know the same.
SOAK=${SOAK:-10m} go test -count 1 -timeout 0 -v -run '^TestSoakNetwork$' "$@" ./witness
# One peer floods the relay with 10,000 bad messages a second, for a minute at most: honest records are not late.
SOAK=${SOAK:-10m} go test -count 1 -timeout 0 -v -run '^TestRelayFlood$' "$@" ./daemon
