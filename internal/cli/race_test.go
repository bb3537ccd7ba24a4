//go:build race

package cli

// memoryFactor: the race detector keeps shadows of all memory.
const memoryFactor = 5
