package daemon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// The local admin socket: who can open it may do anything, so its mode is 0600. It is in
// the data folder. Where its path would be too long for a socket, it is in a folder made
// for it among the temporary files, and the data folder has a link to it.
const (
	socketName   = "admin.sock"
	socketFolder = "witan-" // what the name of the folder made for it begins with
	maxSocket    = 100      // bytes of a path; systems take 104 or 108
)

// AdminSocket finds the admin socket of the daemon that uses a data folder.
func AdminSocket(data string) (string, error) {
	abs, err := filepath.Abs(data)
	if err != nil {
		return "", err
	}
	path := filepath.Join(abs, socketName)
	if len(path) <= maxSocket {
		return path, nil
	}
	linked, err := os.Readlink(path)
	if err != nil {
		return "", err
	}
	link, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if folder, err := os.Lstat(filepath.Dir(linked)); err != nil {
		return "", err
	} else if !folder.IsDir() || folder.Mode().Perm()&0o077 != 0 || owner(folder) != owner(link) { // anybody can make one there once it is gone
		return "", fmt.Errorf("%s leads to a folder of somebody else: %s", path, filepath.Dir(linked))
	}
	return linked, nil
}

// listenAdmin opens the admin socket. The lock of the store says that no other daemon
// uses the data folder.
func (d *daemon) listenAdmin() (net.Listener, error) {
	abs, err := filepath.Abs(d.cfg.Data)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(abs, socketName)
	if old, err := os.Readlink(path); err == nil { // of a process that was killed
		removeSocket(old)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the admin socket: %w", err)
	}
	if len(path) <= maxSocket {
		return listenUnix(path)
	}
	folder, err := os.MkdirTemp("", socketFolder)
	if err != nil {
		return nil, fmt.Errorf("the admin socket: %w", err)
	}
	l := &linkedSocket{at: filepath.Join(folder, socketName), link: path}
	if len(l.at) > maxSocket {
		return nil, errors.Join(fmt.Errorf("the admin socket: the path of the temporary folder is too long, as that of the data folder is: %s; set TMPDIR to a shorter one", l.at), os.Remove(folder))
	}
	if l.Listener, err = listenUnix(l.at); err != nil {
		return nil, errors.Join(err, os.Remove(folder))
	}
	if err := os.Symlink(l.at, path); err != nil {
		return nil, errors.Join(fmt.Errorf("the admin socket: %w", err), l.Close())
	}
	return l, nil
}

func listenUnix(path string) (net.Listener, error) {
	old := umask(0o177)
	l, err := net.Listen("unix", path)
	umask(old)
	if err != nil {
		return nil, fmt.Errorf("the admin socket: %w", err)
	}
	return l, nil
}

// linkedSocket is a socket outside of the data folder.
type linkedSocket struct {
	net.Listener
	at, link string
}

func (l *linkedSocket) Close() error {
	err := l.Listener.Close()
	if at, bad := os.Readlink(l.link); bad == nil && at == l.at {
		_ = os.Remove(l.link)
	}
	removeSocket(l.at)
	return err
}

// removeSocket removes a socket with the folder made for it. What else may be there is
// left alone.
func removeSocket(path string) {
	if folder := filepath.Dir(path); filepath.Base(path) == socketName && strings.HasPrefix(filepath.Base(folder), socketFolder) {
		_ = os.Remove(path)
		_ = os.Remove(folder)
	}
}
