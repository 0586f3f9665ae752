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
	file fs.FileInfo // of the socket that listen created at path
}

// listen creates a socket, and atomically replaces one that an earlier agent has left. The directory must exist: it is
// a mounted directory of the host, and the kubelet does not see sockets anywhere else.
func listen(path string) (*socket, error) {
	// The kubelet ignores names that begin with a dot.
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s, whose directory must be mounted from the host: %w", path, err)
	}
	// When the listener is closed, the path may be that of another agent's socket.
	listener.SetUnlinkOnClose(false)
	s := &socket{Listener: listener, path: path}
	err = errors.Join(os.Chmod(temporary, 0o600), os.Rename(temporary, path))
	if err == nil {
		s.file, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating the socket %s: %w", path, err), listener.Close())
	}
	return s, nil
}

// check returns an error if the socket was removed or replaced, so that the kubelet cannot connect to this process.
func (s *socket) check() error {
	file, err := os.Lstat(s.path)
	if err != nil {
		return fmt.Errorf("checking the socket: %w", err)
	}
	if !os.SameFile(file, s.file) {
		return fmt.Errorf("the socket %s belongs to another process", s.path)
	}
	return nil
}

// unlink removes the socket, so that there are no new connections, unless it was removed or replaced before.
func (s *socket) unlink() {
	if s.check() == nil {
		_ = os.Remove(s.path) // If this fails, the next agent replaces it.
	}
}

// close removes the socket, and stops listening. It may be called after a server has closed the listener.
func (s *socket) close() {
	s.unlink()
	_ = s.Close()
}
