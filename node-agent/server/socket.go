package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
)

// socket is a Unix socket that only root may connect to.
type socket struct {
	net.Listener
	path string
	file fs.FileInfo // what was made at path
}

// listen makes a socket, in one step in place of what an earlier agent may have left. The directory must exist: it is a
// mounted directory of the host, and what is made anywhere else the kubelet would never see.
func listen(path string) (*socket, error) {
	// The kubelet overlooks names that begin with a dot.
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s, whose directory must be one of the host: %w", path, err)
	}
	// By the time it is closed, the path may be that of another agent's socket.
	listener.SetUnlinkOnClose(false)
	s := &socket{Listener: listener, path: path}
	err = errors.Join(os.Chmod(temporary, 0o600), os.Rename(temporary, path))
	if err == nil {
		s.file, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the socket %s: %w", path, err), listener.Close())
	}
	return s, nil
}

// check returns what is wrong with the socket: somebody may have removed or replaced it, and the kubelet does not find
// us any more.
func (s *socket) check() error {
	file, err := os.Lstat(s.path)
	if err != nil {
		return fmt.Errorf("looking for our socket: %w", err)
	}
	if !os.SameFile(file, s.file) {
		return fmt.Errorf("the socket %s is not ours any more", s.path)
	}
	return nil
}

// unlink removes the socket, so that nobody connects any more, unless it is gone or another agent's by now.
func (s *socket) unlink() {
	if s.check() == nil {
		_ = os.Remove(s.path) // If it stays, the next agent replaces it.
	}
}

// close removes the socket, and stops listening. It may be called after a server has closed the listener.
func (s *socket) close() {
	s.unlink()
	_ = s.Close()
}
