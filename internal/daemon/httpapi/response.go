package httpapi

import (
	"net/http"
	"strconv"
)

// maxBuffered is the size, in bytes, up to which a body is buffered. All responses except lists
// of attachments are much shorter.
const maxBuffered = 4 << 10

// writer is an http.ResponseWriter that sends the first status code only, as net/http does, and
// buffers the response: send sends a short one in one piece, with its length, and reset discards it.
// A longer one is sent as it is written.
type writer struct {
	to http.ResponseWriter
	// head is set for a HEAD request: a body that is not sent has no length.
	head bool
	// onStatus is called before the status code is sent.
	onStatus func(code int)

	// code is the status code; 0 before WriteHeader and Write.
	code int
	body []byte
	// started is set when the status code has been sent.
	started bool
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.to.Header() }

// WriteHeader keeps the first status code.
func (w *writer) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

// Write implies status code 200, as in http.ResponseWriter, if there is none yet.
func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.started && len(w.body)+len(b) <= maxBuffered {
		w.body = append(w.body, b...)
		return len(b), nil
	}
	if err := w.start(); err != nil {
		return 0, err
	}
	return w.to.Write(b)
}

// Unwrap returns the writer beneath, for the deadlines of http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.to }

// send sends the complete response. The error means that the client does not get it.
func (w *writer) send() error {
	w.WriteHeader(http.StatusOK)
	if !w.started && (!w.head || len(w.body) > 0) {
		w.to.Header().Set("Content-Length", strconv.Itoa(len(w.body)))
	}
	if err := w.start(); err != nil {
		return err
	}
	return http.NewResponseController(w.to).Flush()
}

// start sends the status code and what is buffered, once.
func (w *writer) start() error {
	if w.started {
		return nil
	}
	w.started = true
	w.onStatus(w.code)
	w.to.WriteHeader(w.code)
	_, err := w.to.Write(w.body)
	return err
}

// reset discards the response, so that another one can be written. It reports false if a part
// of it has been sent already.
func (w *writer) reset() bool {
	if w.started {
		return false
	}
	w.code, w.body = 0, nil
	return true
}
