#!/usr/bin/env bash
# Fuzzes every target for FUZZTIME (default 1m). A package or a target can be named: scripts/fuzz.sh ./adp FuzzScan
set -euo pipefail
cd "$(dirname "$0")/.."

time=${FUZZTIME:-1m}
only=${1:-} name=${2:-Fuzz}
failed=()
while IFS=: read -r file line; do
  pkg=./$(dirname "${file#./}")
  target=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*).*/\1/' <<<"$line")
  [ -z "$only" ] || [ "$only" = "$pkg" ] || continue
  [[ $target == "$name"* ]] || continue
  printf '\n== %s %s, %s\n' "$pkg" "$target" "$time"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$pkg" || failed+=("$pkg $target")
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' . | sort)

printf '\n'
for f in "${failed[@]}"; do printf 'FAILED: %s\n' "$f"; done
[ "${#failed[@]}" -eq 0 ] && echo "every target held for $time"
