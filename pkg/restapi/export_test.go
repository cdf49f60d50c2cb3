package restapi

import (
	"net/http"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
)

// Operations are those that the engine can refuse.
var Operations = []operation{opAllocate, opRestore, opRelease}

// Answers tells whether the table has an entry of its own for a failure.
func Answers(op operation, kind attachment.Kind) bool {
	_, ok := newRefusals()[op][kind]
	return ok
}

// Around returns a handler with what is around every operation: its log line and what
// becomes of a panic.
func Around(log logrus.FieldLogger, next http.Handler) http.Handler {
	return logged(log, nil, recovered(log, next))
}
