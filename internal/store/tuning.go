package store

import (
	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// The engine's tuning, measured with 200,000 records of 1 KiB from 64 writers, each with an index entry and an overwritten
// head row. All of these write and read at about the same rate (with everything in the LSM tree, appends are some 15 %
// faster, and compactions rewrite every record), so memory decided:
//
//	memtable  values in log from   heap        anonymous RSS  a batch of 8 MiB
//	64 MiB    256 B                84 MiB      134 MiB        fits
//	64 MiB    1 KiB                84–144 MiB  330 MiB        fits
//	64 MiB    1 MiB (all in LSM)   236 MiB     510 MiB        fits
//	16 MiB    1 KiB                81–105 MiB  148 MiB        refused: the limit is 2.4 MiB
const (
	// memTableSize decides the transaction limit: 15 % of it in bytes, and a 96th part of that in entries. 64 MiB give
	// 9.6 MiB and 104,857 entries. The engine allocates 1.3 times this for each memtable but touches only what is filled.
	memTableSize = 64 << 20

	// valueThreshold: values of this size and more go to the value log and are not rewritten by compactions. Records are
	// above it; index entries and counters are below.
	valueThreshold = 512

	// maxInMemoryValue: in memory there is no value log, and this is the most that the engine takes into a table.
	maxInMemoryValue = 1<<20 - 1

	// valueLogFileSize is the unit of garbage collection. Each file is mapped and takes a descriptor.
	valueLogFileSize = 64 << 20

	// openNeeds is the free space below which opening and garbage collection are not tried: a memtable to flush and a
	// value log file to rewrite.
	openNeeds = 128 << 20

	// layoutVersion changes when the meaning of keys changes; the engine refuses a folder of another version.
	layoutVersion = 1
)

func engineOptions(o Options, log *engineLog) badger.Options {
	threshold := int64(valueThreshold)
	if o.InMemory {
		threshold = maxInMemoryValue + 1
	}
	return badger.DefaultOptions(o.Dir).
		WithInMemory(o.InMemory).
		WithBypassLockGuard(true). // the folder has a lock of ours, see folder.go
		WithLogger(log).
		WithSyncWrites(true).
		WithDetectConflicts(false). // one writer: nothing can conflict
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithNumLevelZeroTables(4).
		WithNumLevelZeroTablesStall(8).
		WithNumCompactors(2).
		WithBlockCacheSize(16 << 20).
		WithCompression(options.None).
		WithValueThreshold(threshold).
		WithValueLogFileSize(o.LogFile).
		WithExternalMagic(layoutVersion).
		WithMetricsEnabled(false)
}
