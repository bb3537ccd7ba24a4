#!/usr/bin/env bash
# Everything that must hold: format, vet, lint, known vulnerabilities, build, all Go tests with the race
# detector, the pages in a real Chromium, and the conformance suites against the built binary. Installs nothing outside
# of the Go cache, but for Debian's chromium where there is none and this runs as root.
set -euo pipefail
cd "$(dirname "$0")/.."

STATICCHECK=honnef.co/go/tools@v0.8.2
GOVULNCHECK=golang.org/x/vuln@v1.9.0
suites=../shared/conformance

work=$(mktemp -d)
# shellcheck source=scripts/lib.sh
. scripts/lib.sh
step() { printf '\n== %s\n' "$*"; }
skipped=()
skip() { printf 'skipped: %s\n' "$*"; skipped+=("$*"); }

# tool NAME MODULE@VERSION builds a program of a module as $work/NAME. It needs the network the first time only ("go run" asks for
# module names each time), and fails when that cannot be reached.
tool() {
  local log=$work/$1.log dir
  if go mod download -json "$2" >"$log" 2>&1; then
    dir=$(sed -n 's/^[[:space:]]*"Dir": "\(.*\)",\{0,1\}$/\1/p' "$log")
    go build -C "$dir" -buildvcs=false -o "$work/$1" "./cmd/$1" >"$log" 2>&1 && return
  fi
  grep -Eq 'dial |lookup |i/o timeout|TLS handshake timeout|connection (refused|reset)|unexpected EOF|GOPROXY=off| 50[234] ' "$log" && return 1
  tail -n 20 "$log" >&2
  die "$1 does not build"
}

step gofmt
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || die "not formatted (gofmt -w): $unformatted"

step "the verifier for browsers"
scripts/wasm.sh

step go vet
go vet ./...
GOOS=js GOARCH=wasm go vet ./internal/page/verifier/wasm

step staticcheck
if tool staticcheck "$STATICCHECK"; then
  "$work/staticcheck" ./...
else
  skip "staticcheck is not here, and cannot be fetched"
fi

step govulncheck
if tool govulncheck "$GOVULNCHECK"; then
  status=0
  timeout 10m "$work/govulncheck" ./... >"$work/found.log" 2>&1 || status=$?
  if [ "$status" = 0 ]; then
    tail -n 3 "$work/found.log"
  elif [ "$status" = 124 ] || grep -q '^govulncheck: fetching vulnerabilities:' "$work/found.log"; then
    skip "the vulnerability database cannot be reached"
  else
    cat "$work/found.log"
    die "govulncheck"
  fi
else
  skip "govulncheck is not here, and cannot be fetched"
fi

step build
scripts/build.sh

step go test -race
go test -race -timeout 40m ./...
go test -timeout 20m -tags force32bit -run 'Signature|Order|Point|Known|Scalar' ./adp # the arithmetic of browsers
go test -timeout 20m -count 1 -run '^TestHostileRoom$' ./internal/page
SOAK=${SOAK:-30s} go test -race -timeout 40m -count 1 -run '^TestSoak$' ./mirror

step "interop: witnesses that others wrote cosign our log"
status=0
INSTALL_TIME=${INSTALL_TIME:-20} SKIPPED_STATUS=77 scripts/interop.sh >"$work/interop.log" 2>&1 || status=$?
case $status in
  0) grep -E '^(--- PASS|ok)' "$work/interop.log" ;;
  77) skip "$(tail -n 1 "$work/interop.log" | sed 's/^SKIPPED: //') (make interop tries it without a limit of time)" ;;
  *) tail -n 40 "$work/interop.log" >&2; die "interop" ;;
esac

step "the pages in Chromium"
chromium=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$chromium" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Debian's chromium"
  apt=(apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300) # another apt may run
  { "${apt[@]}" update && DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends chromium fonts-dejavu-core fonts-noto-cjk; } >"$work/apt.log" 2>&1 ||
    tail -n 5 "$work/apt.log" >&2
  chromium=$(command -v chromium || true)
fi
if [ -n "$chromium" ] || [ -n "${CI:-}" ]; then
  CHROMIUM=$chromium go test -count 1 -timeout 20m ./internal/browsertest
else
  skip "the pages were not looked at in Chromium: there is none here (Debian's package chromium, or name the program with CHROMIUM)"
fi

step "conformance: one host, asked from outside"
if [ ! -f "$suites/host.test.mjs" ]; then
  skip "there is no $suites"
elif ! command -v node >/dev/null || [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
  skip "the conformance suites need node 20 or newer"
else
  start host
  BASE=$origin node --test --test-reporter=spec "$suites/host.test.mjs" ||
    { tail -n 20 "$work/host.log" >&2; die "host.test.mjs"; }
  kill -TERM "$pid"
  wait "$pid" || die "the daemon did not stop in order: exit $?"

  step "conformance: a host and its mirror"
  WITAN=$PWD/witan node --test --test-reporter=spec "$suites/federation.test.mjs"
fi

printf '\nall passed\n'
for s in "${skipped[@]}"; do printf 'skipped: %s\n' "$s"; done
