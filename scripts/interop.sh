#!/usr/bin/env bash
# Two C2SP witnesses that others wrote, litewitness and omniwitness, cosign a log of ours: while it grows, after a restart of either
# side, and not when it forks. They come from the Go module proxy into a folder that is gone afterwards; where they do not
# install, or not within INSTALL_TIME seconds each, nothing is tested, that is said, and the exit status is SKIPPED_STATUS (0).
# WITAN_INTEROP names a folder that has the programs already.
set -euo pipefail
cd "$(dirname "$0")/.."

litewitness=filippo.io/torchwood/cmd/litewitness@v0.6.1
witnessctl=filippo.io/torchwood/cmd/witnessctl@v0.6.1
omniwitness=github.com/transparency-dev/witness/cmd/omniwitness@v0.0.0-20260720115447-2e1c6971d19e

if [ -n "${WITAN_INTEROP:-}" ]; then
  bin=$(cd "$WITAN_INTEROP" && pwd)
else
  bin=$(mktemp -d)
  trap 'rm -rf "$bin"' EXIT
  for tool in "$litewitness" "$witnessctl" "$omniwitness"; do
    echo "installing $tool"
    if ! GOBIN="$bin" GOFLAGS= timeout "${INSTALL_TIME:-0}" go install "$tool" 2>"$bin/log"; then
      tail -n 5 "$bin/log" >&2
      echo "SKIPPED: $tool does not install here${INSTALL_TIME:+ within $INSTALL_TIME s}; nothing was tested" >&2
      exit "${SKIPPED_STATUS:-0}"
    fi
  done
fi
WITAN_INTEROP=$bin go test -count=1 -timeout 20m -v -run '^TestInterop' ./witness/cosign ./daemon
