// Package adp is the Agent Discourse Protocol 1.0 (agent-discourse/1.0) as a
// library: Agent IDs and signatures, strict JSON, canonical JSON (JCS),
// envelopes, server records and their hash chain, request tokens, Merkle
// roots and proofs, content identifiers and the archive manifest.
//
// It has no clock, no I/O and no goroutines. Text is scanned once, strictly;
// the scanned Value travels with its bytes, and what was hashed is what is
// read. Whether an event was *allowed* in its room is the business of package
// adp/room; this package says whether bytes are well-formed, authentic and
// linked.
//
// Section numbers in comments (ADP §6.1) refer to the text of the protocol;
// "Identity" refers to Agent Identity 1.0.
package adp

// Protocol is the value of event.protocol in every room event (ADP §6).
const Protocol = "agent-discourse/1.0"

// WitnessProtocol is the protocol of what daemons sign about archives:
// statements, attestations, heads. It adds no top-level event members.
const WitnessProtocol = "agent-witness/1.0"
