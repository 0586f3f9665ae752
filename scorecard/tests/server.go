package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	// mountPath is the mount path of the server's listener volume.
	mountPath = "/listener"
	// serverPort is the server's port.
	serverPort = 8080
	// portName is the name of that port in the Pod, and so in the volume.
	portName = "http"
)

// self is the server's response: the name of its Pod, and the address and port in its volume.
type self struct {
	Pod     string `json:"pod"`
	Address string `json:"address"`
	Port    string `json:"port"`
}

// serve runs the server until ctx is done.
func serve(ctx context.Context) error {
	server := &http.Server{Addr: fmt.Sprintf(":%d", serverPort), ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(respond)}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return server.ListenAndServe()
}

// respond writes the content of the volume.
func respond(w http.ResponseWriter, _ *http.Request) {
	s, err := readSelf(mountPath)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(s)
}

// readSelf reads the files of a listener volume.
func readSelf(volume string) (self, error) {
	files := os.DirFS(volume)
	address, err := fs.ReadFile(files, "default-address/address")
	port, err2 := fs.ReadFile(files, "default-address/ports/"+portName)
	name, err3 := os.Hostname()
	return self{Pod: name, Address: string(address), Port: string(port)}, errors.Join(err, err2, err3)
}

// request sends a request to the server.
func request(ctx context.Context, address, port string) (self, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, port), http.NoBody)
	if err != nil {
		return self{}, fmt.Errorf("creating a request: %w", err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return self{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return self{}, fmt.Errorf("the server responds with %s", response.Status)
	}
	var s self
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		return self{}, fmt.Errorf("reading the response: %w", err)
	}
	return s, nil
}

// String returns the response as it appears in messages.
func (s self) String() string {
	return strings.Join([]string{s.Pod, s.Address, s.Port}, " ")
}
