// Package browsertest looks at the pages of the daemon as people do: in a real Chromium without a window, against real daemons on loopback that
// host, mirror and attest real rooms. It holds tests alone. They need a Chromium on the machine (Debian's package chromium, or the program that
// CHROMIUM names); where there is none they are skipped, but fail when CI is set. They do not run under the race detector, which the packages
// that serve the pages do on their own.
package browsertest
