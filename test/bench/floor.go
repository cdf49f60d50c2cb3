package main

import (
	"net"
	"net/http"
	"time"
)

// floorCommand runs this program as the server that does nothing.
const floorCommand = "floor"

// relayCommand runs this program as the server that does nothing but run CHECK.
const relayCommand = "relay"

// serveFloor answers every request on a unix socket with 201 and an address: what
// is left when a server over HTTP does nothing.
func serveFloor(socket string) error { return serve(socket, func() error { return nil }) }

// serveRelay does so when the bare plugin has run CHECK of what it holds: what a
// server between client and plugin costs by itself.
func serveRelay(plugins, store, socket string) error {
	plugin, err := newBare(plugins, store)
	if err != nil {
		return err
	}
	result, _, err := plugin.acquire(owner)
	if err != nil {
		return err
	}
	return serve(socket, func() error {
		_, err := plugin.check(owner, result)
		return err
	})
}

// serve does work for every request, and answers 201 and an address.
func serve(socket string, work func() error) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	answer := []byte(`{"address":{"ipv4":"10.15.0.2"}}` + "\n")
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if err := work(); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		_, _ = rw.Write(answer) // a client that is gone wants no answer
	})}
	return s.Serve(l)
}
