// Package store is the ordered, transactional key-value store under everything that this daemon keeps, and the only
// importer of Badger. It knows keys and values; it does not know what they mean.
//
// Writes go through one committer goroutine. Whatever waits is committed as one engine transaction with one fsync, so
// a busy daemon pays for the disk once per group and not once per write. A write is answered after its fsync, never
// before: what Commit answered is there after a crash.
//
// Reads are snapshots (View) and never wait for writes. There are no write transactions for callers: a caller that must
// look before it writes says so in the Batch (Expect, Check), and the committer looks for it, in order.
//
// keys.go holds the key layout of the whole daemon, so that no two packages can claim the same key.
//
// What this package may not do: decode a value, know the protocol, expose an engine type, or answer a write early.
package store
