#!/usr/bin/env bash
# Compiles the verifier for browsers and packs it where the daemon embeds it (internal/page/verifier/built).
# Done again only when something has changed; it names no commit, so that a commit alone changes nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

built=internal/page/verifier/built
mkdir -p bin
GOOS=js GOARCH=wasm go build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o bin/verify.wasm ./internal/page/verifier/wasm
install -m 0644 "$(go env GOROOT)/lib/wasm/wasm_exec.js" bin/wasm_exec.js
for file in verify.wasm wasm_exec.js; do
  if ! gunzip -c "$built/$file.gz" 2>/dev/null | cmp -s - "bin/$file"; then
    gzip -9 -n -c "bin/$file" >"$built/$file.gz.part"
    mv "$built/$file.gz.part" "$built/$file.gz"
  fi
done
size=$(wc -c <"$built/verify.wasm.gz")
[ "$size" -lt $((4 << 20)) ] || { echo "the verifier for browsers has $size bytes packed: more than 4 MiB" >&2; exit 1; }
