package restapi_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/attachment"
	"github.com/delegated-ipam/delegated-ipam/pkg/restapi"
)

// atLine calls a function when a line is logged.
type atLine func()

func (atLine) Levels() []logrus.Level     { return logrus.AllLevels }
func (f atLine) Fire(*logrus.Entry) error { f(); return nil }

func TestAnAnswerIsOutBeforeItsLineIsWritten(t *testing.T) {
	for name, c := range map[string]struct {
		request request
		code    int
	}{
		"one with a body":    {request{"", http.MethodPost, "/v1/ipam?owner=health"}, http.StatusCreated},
		"one without a body": {request{"", http.MethodDelete, "/v1/ipam/10.1.2.3"}, http.StatusOK},
		"a refusal":          {request{"", http.MethodPost, "/v1/ipam?owner=%zz"}, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dualStack, restapi.Report{})
			f.engine.got = held("health")
			rec := httptest.NewRecorder()
			lines := 0
			f.logger.AddHook(atLine(func() {
				lines++
				if !rec.Flushed || rec.Code != c.code || rec.Header().Get("Content-Length") != strconv.Itoa(rec.Body.Len()) {
					t.Errorf("at its line the answer is %d, flushed: %t, %v, %d bytes", rec.Code, rec.Flushed, rec.Header(), rec.Body.Len())
				}
			}))
			f.handler.ServeHTTP(rec, httptest.NewRequest(c.request.method, c.request.target, nil))
			if lines != 1 {
				t.Errorf("%d lines; want one", lines)
			}
		})
	}
}

func TestAnAnswerOfAnyLengthIsWhole(t *testing.T) {
	f := newFixture(t, dualStack, restapi.Report{})
	for count := range 60 {
		a := held("default/" + strings.Repeat("x", count))
		f.engine.all = append(f.engine.all, attachment.Attachment{Record: a.Record})
		rec := httptest.NewRecorder()
		f.handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/ipam", nil))
		if got := strings.Count(rec.Body.String(), `"owner":`); got != count+1 {
			t.Fatalf("%d attachments in %d bytes; want %d", got, rec.Body.Len(), count+1)
		}
	}
}
