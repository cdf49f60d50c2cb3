package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// waitForLogLine waits for a line with the fields in a daemon's JSON log, and returns it.
func waitForLogLine(t *testing.T, s *harness.Daemon, want map[string]any) map[string]any {
	t.Helper()
	var found map[string]any
	harness.Eventually(t, fmt.Sprintf("a line with %v", want), func() error {
		for text := range strings.Lines(s.Log()) {
			line := map[string]any{}
			if json.Unmarshal([]byte(text), &line) != nil {
				return fmt.Errorf("%q is not JSON", text)
			}
			matches := true
			for field, value := range want {
				matches = matches && line[field] == value
			}
			if matches {
				found = line
				return nil
			}
		}
		return errors.New("no such line")
	})
	return found
}

// wantAttachmentFields wants a log line to have the fields of the router's attachment, its
// addresses and the duration.
func wantAttachmentFields(t *testing.T, line map[string]any, ips ...any) {
	t.Helper()
	id, _ := line["containerID"].(string)
	got, _ := line["ipAddrs"].([]any)
	took, isNumber := line["duration"].(float64)
	if line["owner"] != "router" || line["poolName"] != "default" || !strings.HasPrefix(id, "cilium-agent-router-") || !slices.Equal(got, ips) || !isNumber || took <= 0 {
		t.Errorf("the line is %v; want owner, poolName, containerID, the ipAddrs %v and duration", line, ips)
	}
}

func TestLogBackgroundWork(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.IPv4Only())
	n.Flags = append(n.Flags, "--log-level=info", "--log-format=json")
	s := n.Start(t, "--ipam-expiration=1ms")
	n.ResetHistory()
	ip := s.Allocate(t, harness.Request{Owner: "router", Expire: true}).Address.IPv4
	wantAttachmentFields(t, waitForLogLine(t, s, map[string]any{"level": "info", "msg": "Background work done", "action": "expire"}), ip)
	s.Stop(t)

	s = n.Start(t, "--release-delay=1ms")
	ip = s.AllocateFor(t, "router")[0]
	s.Release(t, ip)
	wantAttachmentFields(t, waitForLogLine(t, s, map[string]any{"level": "info", "msg": "Background work done", "action": "cleanup"}), ip)
	ip = s.AllocateFor(t, "router")[0]
	s.Stop(t)

	n.WipeStore(t)
	s = n.Start(t)
	wantAttachmentFields(t, waitForLogLine(t, s, map[string]any{"level": "info", "action": "reacquire", "msg": "Reacquired: the plugin holds the attachment again"}), ip)
	s.Stop(t)

	n.ResetHistory()
	s = n.Start(t, "--owners=health", "--retire-owners")
	wantAttachmentFields(t, waitForLogLine(t, s, map[string]any{"level": "info", "msg": "Background work done", "action": "retire"}), ip)
}

func TestLogRequestID(t *testing.T) {
	t.Parallel()
	s := nodeWith(t, harness.IPv4Only()).Start(t, "--log-level=debug", "--log-format=json", "--owners=router")
	got := s.Do(t, http.MethodPost, "/v1/ipam?owner=router", "X-Request-Id", "agent-17")
	if id := got.Header.Get("X-Request-Id"); got.Status != http.StatusCreated || id != "agent-17" {
		t.Fatalf("%v with the request ID %q; want that of the caller", got, id)
	}
	for _, line := range []map[string]any{
		{"msg": "Request completed", "owner": "router"}, {"msg": "Plugin call ended", "verb": "DEL"}, {"msg": "Plugin call ended", "verb": "ADD"},
	} {
		line["requestID"] = "agent-17"
		waitForLogLine(t, s, line)
	}

	got = s.Do(t, http.MethodPost, "/v1/ipam?owner=other")
	const reason = `owner "other" is not admitted by --owners`
	id := got.Header.Get("X-Request-Id")
	if got.Status != http.StatusForbidden || strings.TrimSpace(string(got.Body)) != strconv.Quote(reason) {
		t.Errorf("got %v; want 403 and %q", got, reason)
	}
	waitForLogLine(t, s, map[string]any{"requestID": id, "error": reason, "code": float64(http.StatusForbidden)})
	if id := s.Do(t, http.MethodGet, "/metrics").Header.Get("X-Request-Id"); id == "" {
		t.Error("the response to GET /metrics has no request ID")
	}
}

func TestLogClientDisconnected(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--log-level=info", "--log-format=json", "--plugin-timeout=10m")
	plugin.SetScript(t, "ADD", `{"gate":"open"}`)
	ctx, disconnect := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/v1/ipam?owner=router&family=ipv4", http.NoBody)
	check.Must(t, err)
	failed := make(chan error, 1)
	go func() {
		_, err := s.Send(req)
		failed <- err
	}()
	plugin.WaitCall(t, "ADD", 0)
	disconnect()
	if err := <-failed; err == nil {
		t.Fatal("the disconnected client got a response")
	}
	waitForLogLine(t, s, map[string]any{"msg": "Request failed", "owner": "router"})
	plugin.Open(t, "open")
	line := waitForLogLine(t, s, map[string]any{"level": "info", "msg": "Completed after the client had left", "action": "allocate"})
	wantAttachmentFields(t, line, "10.15.0.2")
}

func TestLogPluginFailure(t *testing.T) {
	t.Parallel()
	n, plugin := scriptedNode(t, "scripted", nil)
	s := n.Start(t, "--log-level=info", "--log-format=json")
	ip := s.AllocateFor(t, "router")[0]
	plugin.SetScript(t, "DEL", `{"error":{"code":11,"msg":"the store is locked"},"stderr":"lock held by 4711"}`)
	s.TryRelease(t, ip).WantStatus(t, http.StatusInternalServerError)
	for _, want := range []map[string]any{
		{"level": "warning", "msg": "Request failed"},
		{"level": "warning", "msg": "Background work failed; it is retried", "action": "cleanup"},
	} {
		line := waitForLogLine(t, s, want)
		wantAttachmentFields(t, line, ip)
		for _, part := range []string{"code 11", "the store is locked", "lock held by 4711"} {
			if text, _ := line["error"].(string); !strings.Contains(text, part) {
				t.Errorf("the error is %q; want it to contain %q", text, part)
			}
		}
	}
	plugin.ClearScript(t, "DEL")
	waitForLogLine(t, s, map[string]any{"level": "info", "msg": "Background work done", "action": "cleanup"})
}

func TestLogNoSecrets(t *testing.T) {
	t.Parallel()
	const inFile, inEnvironment = "hunter2-in-the-file", "hunter2-in-the-environment"
	for _, level := range []string{"info", "trace"} {
		for _, format := range []string{"text", "json"} {
			t.Run(level+" as "+format, func(t *testing.T) {
				t.Parallel()
				n, plugin := scriptedNode(t, "scripted", map[string]any{"subnet": "10.15.0.0/24", "password": inFile})
				n.Env = []string{"DB_PASSWORD=" + inEnvironment}
				n.Flags = append(n.Flags, "--log-level="+level, "--log-format="+format, "--plugin-env=DB_PASSWORD")
				s := n.Start(t)
				ip := s.AllocateFor(t, "router")[0]
				for _, verb := range []string{"ADD", "DEL"} {
					plugin.SetScript(t, verb, `{"error":{"code":11,"msg":"no"},"stderr":"trouble"}`)
				}
				s.TryAllocate(t, harness.Request{Owner: "health"})
				s.TryRelease(t, ip)
				for _, crash := range []string{`{"stdout":"nonsense"}`, `{"exitCode":3}`, `{"killSelf":9}`} {
					plugin.SetScript(t, "ADD", crash)
					s.TryAllocate(t, harness.Request{Owner: "ingress"})
				}
				for _, verb := range []string{"ADD", "DEL"} {
					plugin.ClearScript(t, verb)
				}
				n.WriteConf(t, "05-cilium.conflist", []byte(`{"name":"pods","plugins":[{"ipam":{"password":"`+inFile+`"`))
				n.WriteConf(t, "06-cilium.conflist", []byte(`{"name":"pods","cniVersion":"1.0.0","plugins":[{"type":"cilium-cni","ipam":{"type":7,"password":"`+inFile+`"}}]}`))
				harness.Eventually(t, "the broken configuration to be reported", func() error {
					if h := s.Health(t); len(h.DelegatedIPAM.Pools) != 1 || h.DelegatedIPAM.Pools[0].Error == "" {
						return fmt.Errorf("health has %+v", h.DelegatedIPAM.Pools)
					}
					return nil
				})
				s.Stop(t)
				n.ResetHistory()
				if !plugin.Received(t, inFile) || !plugin.Received(t, inEnvironment) {
					t.Error("the plugin did not get the passwords; the test proves nothing")
				}
				if strings.Contains(s.Log(), "hunter2") {
					t.Errorf("the log has a password:\n%s", s.Log())
				}
				if level == "trace" && (!strings.Contains(s.Log(), "Plugin call ended") || !strings.Contains(s.Log(), "trouble")) {
					t.Errorf("the log has no plugin calls; the test proves nothing:\n%s", s.Log())
				}
			})
		}
	}
}
