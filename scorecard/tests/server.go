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
	// mountPath is where the server finds its listener volume.
	mountPath = "/listener"
	// serverPort is what it listens on.
	serverPort = 8080
	// portName is the name of that port, in the Pod and so in the volume.
	portName = "http"
)

// self is what the server answers: who it is, and what it was told about its own address.
type self struct {
	Pod     string `json:"pod"`
	Address string `json:"address"`
	Port    string `json:"port"`
}

// serve answers every request until ctx is done.
func serve(ctx context.Context) error {
	server := &http.Server{Addr: fmt.Sprintf(":%d", serverPort), ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(answer)}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return server.ListenAndServe()
}

// answer writes what the server knows of itself.
func answer(w http.ResponseWriter, _ *http.Request) {
	s, err := readSelf(mountPath)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(s)
}

// readSelf reads a volume as a product would.
func readSelf(volume string) (self, error) {
	files := os.DirFS(volume)
	address, err := fs.ReadFile(files, "default-address/address")
	port, err2 := fs.ReadFile(files, "default-address/ports/"+portName)
	name, err3 := os.Hostname()
	return self{Pod: name, Address: string(address), Port: string(port)}, errors.Join(err, err2, err3)
}

// ask asks the server at the address.
func ask(ctx context.Context, address, port string) (self, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(address, port), http.NoBody)
	if err != nil {
		return self{}, fmt.Errorf("making a request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return self{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return self{}, fmt.Errorf("the server answers %s", response.Status)
	}
	var s self
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		return self{}, fmt.Errorf("reading the answer: %w", err)
	}
	return s, nil
}

// String is the form of an answer in messages.
func (s self) String() string {
	return strings.Join([]string{s.Pod, s.Address, s.Port}, " ")
}
