package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/httpapi"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// A DEL of the interface that is to be carried out first, and fails, refuses an ADD.
func TestBeforeAdd(t *testing.T) {
	var got string
	f := newFixtureWith(t, httpapi.Options{BeforeAdd: func(_ context.Context, network string, c call.Container) error {
		got = network + " " + c.ContainerID + " " + c.IfName
		return &attachment.Error{Kind: attachment.Failed, RetryAfter: 5 * time.Second, Err: errors.New("an earlier DEL")}
	}})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/cni/add", strings.NewReader(`{"network":"pods","container-id":"a","ifname":"eth0"}`))
	request.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, request)
	if w.Code != http.StatusBadGateway || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), "an earlier DEL") {
		t.Errorf("got %d, %v, %s; want 502 with the reason", w.Code, w.Header(), w.Body)
	}
	check.Equal(t, "call", got, "pods a eth0")
	check.Equal(t, "requests of the engine", f.engine.calls(), 0)
}
