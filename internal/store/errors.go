package store

import "errors"

var (
	// ErrClosed answers every call after Close has begun.
	ErrClosed = errors.New("store: closed")

	// ErrLocked answers Open when another process, or another Store of this one, has the folder.
	ErrLocked = errors.New("store: the folder is in use by another process")

	// ErrDiskFull answers a write, or Open, when the disk has less free space than Options.MinFree asks for. Nothing was
	// written. The same write may be tried again after space was made.
	ErrDiskFull error = diskFull{}

	// ErrConflict answers a batch of which an Expect was not met. Nothing of the batch was written.
	ErrConflict = errors.New("store: conflict")

	// ErrTooBig answers a batch that is larger than one transaction may be. Nothing of it was written; split it where
	// that is safe.
	ErrTooBig = errors.New("store: batch too big for one transaction")

	// ErrFailed answers every write after the engine failed to commit one. After a failed fsync nobody knows what the disk
	// holds, so the store stays readable and takes no more writes until it is opened again. The batches of the failed
	// group may or may not be there afterwards.
	ErrFailed = errors.New("store: an earlier commit failed; restart to recover from what is on the disk")

	// ErrBadKey answers a batch with a key that cannot be stored: empty, longer than MaxKey, or of a reserved range.
	ErrBadKey = errors.New("store: bad key")

	// ErrNotEmpty answers Restore into a store that holds something.
	ErrNotEmpty = errors.New("store: restore needs an empty store")

	// ErrBadBackup answers Restore when the stream is not a whole, undamaged backup. The store is empty afterwards.
	ErrBadBackup = errors.New("store: not a complete backup")
)

type diskFull struct{}

func (diskFull) Error() string { return "store: the disk is nearly full" }

// Unavailable is what a client is told: see web.WriteError.
func (diskFull) Unavailable() string {
	return "the disk of this host is full, so that nothing can be stored; nothing of the write was kept: try again later, and tell the operator"
}
