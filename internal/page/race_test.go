//go:build race

package page

// raced: pages are made by one goroutine each, and the race detector makes the largest
// table ten times as slow.
const raced = true
