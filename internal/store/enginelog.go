package store

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// engineLog hands the engine's warnings and errors to slog and drops its chatter.
//
// It also listens: when the sync of the value log fails, Badger v4 logs that and commits all the same. A commit must not be
// answered then, so the committer asks syncFailure after each one. The message is logged before the commit returns.
type engineLog struct {
	log      *slog.Logger
	unsynced atomic.Pointer[error]
}

const valueLogSyncMessage = "Error while curlf sync"

func (l *engineLog) Errorf(format string, args ...any) {
	msg := oneLine(format, args)
	if strings.HasPrefix(format, valueLogSyncMessage) {
		err := errors.New(msg)
		l.unsynced.CompareAndSwap(nil, &err)
	}
	l.log.Error("storage engine", "message", msg)
}

func (l *engineLog) Warningf(format string, args ...any) {
	l.log.Warn("storage engine", "message", oneLine(format, args))
}

func (l *engineLog) Infof(string, ...any)  {}
func (l *engineLog) Debugf(string, ...any) {}

// syncFailure returns the first failed sync of the value log, or nil.
func (l *engineLog) syncFailure() error {
	if err := l.unsynced.Load(); err != nil {
		return *err
	}
	return nil
}

func oneLine(format string, args []any) string {
	return strings.TrimSpace(fmt.Sprintf(format, args...))
}
