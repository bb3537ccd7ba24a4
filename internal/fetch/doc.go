// Package fetch is the only outbound HTTP client of the daemon and of the commands.
//
// Every URL that it is given may have been chosen by a stranger, and every answer may be hostile. So it
// connects only to public addresses (an SSRF guard at the moment of dialling, not before it), follows
// redirects only within one origin, and bounds each answer in size, in time and in slowness. It reads no
// proxy from the environment, keeps no cookies, and verifies TLS 1.2 or newer.
//
// It also says what an origin is (Origin), so that all parts of the daemon spell it in one way.
//
// It may not know the protocol: it carries bytes, and an HTTP status of any kind is an answer, not an error.
package fetch
