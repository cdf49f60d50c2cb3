package httpapi

import (
	"maps"
	"net/http"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
)

// ErrorKinds returns the kinds in the error table of each operation.
func ErrorKinds() map[string][]engine.Kind {
	kinds := map[string][]engine.Kind{}
	for name, table := range map[string]errorResponses{
		"allocate": allocateErrors(), "restore": restoreErrors(), "release": releaseErrors(),
	} {
		kinds[name] = slices.Collect(maps.Keys(table))
	}
	return kinds
}

// WithServer returns an API around another handler than the generated server.
func WithServer(log logrus.FieldLogger, server http.Handler) *API {
	return &API{server: server, log: log.WithFields(nil)}
}
