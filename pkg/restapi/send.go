package restapi

import (
	"net/http"
	"strconv"
)

// maxHeld is how many bytes of a body are held back at most. Answers that name no
// list of attachments are much shorter.
const maxHeld = 4 << 10

// answer holds an answer back until it is whole, so that it goes out in one piece
// and at once when send says so, with its length. One with a long body goes out as
// it comes.
type answer struct {
	to http.ResponseWriter
	// head tells that HEAD was asked: what is not sent is not counted either.
	head bool
	// code is the status code; 0 until there is one.
	code int
	body []byte
	// begun tells that a part of it is out already.
	begun bool
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.to.Header() }

// WriteHeader keeps the first status code.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
}

// Write is an implicit 200 if no status code was set (net/http, ResponseWriter).
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if !a.begun && len(a.body)+len(b) <= maxHeld {
		a.body = append(a.body, b...)
		return len(b), nil
	}
	if err := a.begin(); err != nil {
		return 0, err
	}
	return a.to.Write(b)
}

// begin sends what there is.
func (a *answer) begin() error {
	if a.begun {
		return nil
	}
	a.begun = true
	a.to.WriteHeader(a.code)
	_, err := a.to.Write(a.body)
	return err
}

// send sends the whole answer. The error says that the client cannot have it.
func (a *answer) send() error {
	a.WriteHeader(http.StatusOK)
	if !a.begun && (!a.head || len(a.body) > 0) {
		a.to.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	if err := a.begin(); err != nil {
		return err
	}
	return http.NewResponseController(a.to).Flush()
}

// forget drops what is held back, so that another answer can take its place. It
// tells whether nothing is out yet.
func (a *answer) forget() bool {
	if !a.begun {
		a.code, a.body = 0, nil
	}
	return !a.begun
}
