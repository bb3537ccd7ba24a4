# make run    build ./witan and start it with defaults
# make test   everything that must hold (scripts/test.sh says what)
# make demo   two daemons: a discussion, mirroring, index, archive, attestation; then the host is stopped
# make screenshots  every page as a picture, at two widths, by day and by night, in bin/screenshots (needs Chromium; docs/room.png is its readme.png)
# make bench  the gates of speed, as ratios
# make soak   hosts that die, stall, lie and come back, for ten minutes (SOAK=2m: for two)
# make fuzz   every fuzz target for FUZZTIME (1m)
# make interop  witnesses that others wrote cosign our log (installs them, needs the network)

.PHONY: build run test demo screenshots bench soak fuzz interop clean
.DEFAULT_GOAL := build

build:
	scripts/build.sh

run: build
	./witan serve

test:
	scripts/test.sh

demo: build
	scripts/demo.sh

screenshots:
	scripts/wasm.sh
	SCREENSHOTS="$${SCREENSHOTS:-$(CURDIR)/bin/screenshots}" go test -count 1 ./internal/browsertest

bench:
	scripts/bench.sh

soak:
	scripts/soak.sh

fuzz:
	scripts/fuzz.sh

interop:
	scripts/interop.sh

clean:
	rm -f witan
