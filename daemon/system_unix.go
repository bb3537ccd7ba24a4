//go:build unix

package daemon

import (
	"io/fs"
	"math"
	"syscall"
)

// owner is the user whom a file belongs to.
func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

func umask(mask int) int { return syscall.Umask(mask) }

// openFiles is how many files, sockets among them, the process may have open.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt // the system knows no bound
	}
	return int(min(uint64(limit.Cur), math.MaxInt))
}
