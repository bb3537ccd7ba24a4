#!/usr/bin/env bash
# Builds ./witan, with the verifier for browsers in it.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/wasm.sh
stamp=() # its version names the commit, unless git does not tell: there is none, or the folder is another user's
git rev-parse -q --verify HEAD >/dev/null 2>&1 || stamp=(-buildvcs=false)
go build "${stamp[@]}" -o witan .
