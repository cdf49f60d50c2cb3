// Package response has the http.ResponseWriter of the middlewares: it reports the status code
// and buffers a short response until it is complete.
package response

import (
	"net/http"
	"strconv"
)

// maxBuffered is the size, in bytes, up to which a body is buffered. All responses except lists
// of attachments are much shorter.
const maxBuffered = 4 << 10

// Writer is an http.ResponseWriter that sends the first status code only, as net/http does, and
// buffers a response up to its limit.
type Writer struct {
	to http.ResponseWriter
	// limit is the size of the buffer in bytes; 0 for none.
	limit int
	// head is set for a HEAD request: a body that is not sent has no length.
	head bool
	// onStatus, if not nil, is called before the status code is sent.
	onStatus func(code int)

	// code is the status code; 0 before WriteHeader and Write.
	code int
	body []byte
	// started is set when the status code has been sent.
	started bool
}

// NewBuffer returns a Writer that buffers the response to r: Send sends a short one in one
// piece, with its length, and Reset discards it. A longer one is sent as it is written.
func NewBuffer(to http.ResponseWriter, r *http.Request) *Writer {
	return &Writer{to: to, limit: maxBuffered, head: r.Method == http.MethodHead}
}

// NewObserver returns a Writer without a buffer. It calls onStatus, once, before the status
// code is sent. The caller must call WriteHeader(200) after the handler: net/http sends that code
// for a handler that writes nothing, and does not pass it through the Writer.
func NewObserver(to http.ResponseWriter, onStatus func(code int)) *Writer {
	return &Writer{to: to, onStatus: onStatus}
}

// Header implements http.ResponseWriter.
func (w *Writer) Header() http.Header { return w.to.Header() }

// Status returns the status code; 0 if there is none yet.
func (w *Writer) Status() int { return w.code }

// WriteHeader keeps the first status code.
func (w *Writer) WriteHeader(code int) {
	if w.code != 0 {
		return
	}
	w.code = code
	if w.limit == 0 {
		w.start()
	}
}

// Write implies status code 200, as in http.ResponseWriter, if there is none yet.
func (w *Writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !w.started && len(w.body)+len(b) <= w.limit {
		w.body = append(w.body, b...)
		return len(b), nil
	}
	if err := w.sendBuffer(); err != nil {
		return 0, err
	}
	return w.to.Write(b)
}

// Unwrap returns the writer beneath, for the deadlines of http.ResponseController.
func (w *Writer) Unwrap() http.ResponseWriter { return w.to }

// FlushError sends what has been written so far (http.ResponseController).
func (w *Writer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	if err := w.sendBuffer(); err != nil {
		return err
	}
	return http.NewResponseController(w.to).Flush()
}

// Send sends the complete response. The error means that the client does not get it.
func (w *Writer) Send() error {
	w.WriteHeader(http.StatusOK)
	if !w.started && (!w.head || len(w.body) > 0) {
		w.to.Header().Set("Content-Length", strconv.Itoa(len(w.body)))
	}
	return w.FlushError()
}

// Reset discards the response, so that another one can be written. It reports false if a part
// of it has been sent already.
func (w *Writer) Reset() bool {
	if w.started {
		return false
	}
	w.code, w.body = 0, nil
	return true
}

func (w *Writer) sendBuffer() error {
	if w.started {
		return nil
	}
	w.start()
	_, err := w.to.Write(w.body)
	return err
}

func (w *Writer) start() {
	w.started = true
	if w.onStatus != nil {
		w.onStatus(w.code)
	}
	w.to.WriteHeader(w.code)
}
