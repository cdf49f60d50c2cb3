package main

import (
	"net"
	"net/http"
	"time"
)

// floorCommand runs this program as the server that does nothing.
const floorCommand = "floor"

// serveFloor responds to every request on a unix socket with 201 and the same address.
func serveFloor(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	body := []byte(`{"address":{"ipv4":"10.15.0.2"}}` + "\n")
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusCreated)
		_, _ = rw.Write(body) // the client may be gone
	})}
	return s.Serve(l)
}
