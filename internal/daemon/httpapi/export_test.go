package httpapi

import (
	"net/http"
)

// WithServer returns an API around another handler than the generated server.
func WithServer(o Options, server http.Handler) *API {
	a, err := New(o)
	if err != nil {
		panic(err)
	}
	a.server = server
	return a
}
