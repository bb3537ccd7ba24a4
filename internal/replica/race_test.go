//go:build race

package replica

// raceDetector: the engine's own garbage collection reads one counter of its
// memtable while its writer goroutine changes it, which the race detector sees.
const raceDetector = true
