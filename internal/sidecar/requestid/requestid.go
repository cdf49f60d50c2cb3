// Package requestid gives each HTTP request an ID, which its response has and its log lines.
package requestid

import (
	"crypto/rand"
	"net/http"

	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

// Header is the header of the ID in requests and responses.
const Header = "X-Request-Id"

// maxLength is the maximum length of a caller's ID in bytes.
const maxLength = 64

// Handler returns a handler that passes requests with an ID in their context (logging.RequestID)
// to next, and sends the ID with each response. The ID is that of the caller if it is valid: 1 to
// 64 ASCII letters, digits, '-', '_' and '.', sent once. Otherwise a random one is generated.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := rand.Text()
		if sent := r.Header[Header]; len(sent) == 1 && valid(sent[0]) {
			id = sent[0]
		}
		w.Header().Set(Header, id)
		next.ServeHTTP(w, r.WithContext(logging.WithRequestID(r.Context(), id)))
	})
}

func valid(id string) bool {
	for i := range len(id) {
		c := id[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return 1 <= len(id) && len(id) <= maxLength
}
