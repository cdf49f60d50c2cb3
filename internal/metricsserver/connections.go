package metricsserver

import (
	"net"
	"net/http"
	"sync"
)

// maxConnections is the largest number of open connections.
const maxConnections = 128

// connections are the open connections of a server. At the limit a new one is accepted, and the one
// that has been idle for longest is closed: any host may open connections, and probes must be answered
// while others hold theirs.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]connection
	// changes is the number of changes of state so far.
	changes int
}

type connection struct {
	// active is set while a request is served, from the end of its header to the end of its response.
	active bool
	// since is the number of the last change of its state.
	since int
}

// track is the ConnState of the server. For a new connection it is called before the next one is
// accepted.
func (s *connections) track(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, isOpen := s.open[c]
	switch {
	case state == http.StateClosed:
		delete(s.open, c)
		return
	case state == http.StateNew && len(s.open) >= maxConnections:
		s.closeOne()
	case state != http.StateNew && !isOpen: // closed by closeOne
		return
	}
	s.changes++
	s.open[c] = connection{active: state == http.StateActive, since: s.changes}
}

// closeOne closes the connection whose state has not changed for longest, an active one only if all are
// active.
func (s *connections) closeOne() {
	var oldest net.Conn
	for c, is := range s.open {
		was := s.open[oldest]
		if oldest == nil || was.active && !is.active || was.active == is.active && is.since < was.since {
			oldest = c
		}
	}
	delete(s.open, oldest)
	_ = oldest.Close() // its goroutine in net/http ends
}
