package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

var kinds = []error{
	client.ErrInvalid, client.ErrForbidden, client.ErrNotFound, client.ErrExists, client.ErrFamilyDisabled,
	client.ErrFailed, client.ErrRetryLater, client.ErrNotDaemon,
}

func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		response
		kind error
		want client.Error
		text string
	}{
		"not an address":  {response{code: 400}, client.ErrInvalid, client.Error{StatusCode: 400}, "the daemon answered 400 Bad Request without a reason"},
		"bad parameter":   {response{code: 422, body: `"owner is too long"`}, client.ErrInvalid, client.Error{StatusCode: 422, Reason: "owner is too long"}, "owner is too long"},
		"forbidden":       {response{code: 403}, client.ErrForbidden, client.Error{StatusCode: 403}, "the daemon answered 403 Forbidden without a reason"},
		"not found":       {response{code: 404}, client.ErrNotFound, client.Error{StatusCode: 404}, "the daemon answered 404 Not Found without a reason"},
		"exists":          {response{code: 409}, client.ErrExists, client.Error{StatusCode: 409}, "the daemon answered 409 Conflict without a reason"},
		"family disabled": {response{code: 501}, client.ErrFamilyDisabled, client.Error{StatusCode: 501}, "the daemon answered 501 Not Implemented without a reason"},
		"failed":          {response{code: 500, body: `"DEL failed"`}, client.ErrFailed, client.Error{StatusCode: 500, Reason: "DEL failed"}, "DEL failed"},
		"exhausted":       {response{code: 502, body: `"no addresses"`}, client.ErrFailed, client.Error{StatusCode: 502, Reason: "no addresses"}, "no addresses"},
		"queue full":      {response{code: 502, retryAfter: "5", body: `"queue is full"`}, client.ErrRetryLater, client.Error{StatusCode: 502, Reason: "queue is full", RetryAfter: 5 * time.Second}, "queue is full"},
		"stopping":        {response{code: 500, retryAfter: "2", body: `"stopping"`}, client.ErrRetryLater, client.Error{StatusCode: 500, Reason: "stopping", RetryAfter: 2 * time.Second}, "stopping"},
		"above a limit":   {response{code: 503, retryAfter: "1", body: `"try again"`}, client.ErrRetryLater, client.Error{StatusCode: 503, Reason: "try again", RetryAfter: time.Second}, "try again"},
		"bad Retry-After": {response{code: 500, retryAfter: "soon", body: `"x"`}, client.ErrFailed, client.Error{StatusCode: 500, Reason: "x"}, "x"},
		"plain text":      {response{code: 404, body: "404 page not found\n"}, client.ErrNotFound, client.Error{StatusCode: 404, Reason: "404 page not found"}, "404 page not found"},
		"other JSON":      {response{code: 500, body: `{"error":"x"}`}, client.ErrFailed, client.Error{StatusCode: 500, Reason: `{"error":"x"}`}, `{"error":"x"}`},
		"reason":          {response{code: 409, body: `"router has it"`}, client.ErrExists, client.Error{StatusCode: 409, Reason: "router has it"}, "router has it"},
		"request ID":      {response{code: 403, requestID: "abc", body: `"no"`}, client.ErrForbidden, client.Error{StatusCode: 403, Reason: "no", RequestID: "abc"}, "no"},
		"unknown code":    {response{code: 418}, nil, client.Error{StatusCode: 418}, "the daemon answered 418 I'm a teapot without a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, op := range []string{"allocate", "restore", "release", "status"} {
				c, _ := start(t, tt.response)
				err := calls[op](t.Context(), c)
				var got *client.Error
				if !errors.As(err, &got) || *got != tt.want || err.Error() != tt.text {
					t.Errorf("%s: got %#v, %v; want %#v, %q", op, got, err, tt.want, tt.text)
				}
				of := slices.DeleteFunc(slices.Clone(kinds), func(k error) bool { return !errors.Is(err, k) })
				if tt.kind == nil && len(of) > 0 || tt.kind != nil && !slices.Equal(of, []error{tt.kind}) {
					t.Errorf("%s: is of the kinds %v; want %v only", op, of, tt.kind)
				}
			}
		})
	}
}

func TestNotDaemon(t *testing.T) {
	for name, tt := range map[string]struct {
		call string
		response
	}{
		"cilium-agent's list":            {"list", response{code: 405, body: `{"code":405,"message":"method GET is not allowed, but [POST] are"}`}},
		"unknown path":                   {"list", response{code: 404, body: `{"code":404,"message":"path was not found"}`}},
		"null list":                      {"list", response{code: 200, body: "null"}},
		"null attachment":                {"list", response{code: 200, body: "[null]"}},
		"null address":                   {"list", response{code: 200, body: `[{"owner":"a","addresses":[null]}]`}},
		"cilium-agent's status":          {"status", response{code: 200, body: `{"cilium":{"state":"Ok"},"ipam":{}}`}},
		"null status":                    {"status", response{code: 200, body: "null"}},
		"null pool":                      {"status", response{code: 200, body: `{"delegated-ipam":{"pools":[null]}}`}},
		"null addresses of a pool":       {"status", response{code: 200, body: `{"delegated-ipam":{"pools":[{"addresses":[null]}]}}`}},
		"null record":                    {"status", response{code: 200, body: `{"delegated-ipam":{"quarantined":[null]}}`}},
		"null option":                    {"status", response{code: 200, body: `{"delegated-ipam":{"options":[null]}}`}},
		"allocation without address":     {"allocate", response{code: 201, body: "{}"}},
		"allocation of an empty address": {"allocate", response{code: 201, body: `{"address":{"ipv4":""}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := start(t, tt.response)
			if err := calls[tt.call](t.Context(), c); !errors.Is(err, client.ErrNotDaemon) {
				t.Errorf("got %v; want ErrNotDaemon", err)
			}
		})
	}
}

// With --health-details=authorized others than callers get the state alone.
func TestStatusWithoutDetails(t *testing.T) {
	c, _ := start(t, response{code: 200, body: `{"cilium":{"state":"Warning"}}`})
	if _, err := c.Status(t.Context()); !errors.Is(err, client.ErrForbidden) || !strings.Contains(err.Error(), "it is Warning, and shows") {
		t.Errorf("got %v; want ErrForbidden with the state", err)
	}
}

func TestMalformed(t *testing.T) {
	for name, tt := range map[string]struct{ call, body string }{
		"empty list":              {"list", ""},
		"truncated list":          {"list", "["},
		"truncated attachment":    {"list", `[{"owner":"a"`},
		"list without end":        {"list", `[{"owner":"a"}`},
		"object for a list":       {"list", "{}"},
		"bad address in a list":   {"list", `[{"owner":"a","addresses":[{"ip":"x"}]}]`},
		"bad given-up address":    {"list", `[{"owner":"a","given-up":["x"]}]`},
		"truncated list, release": {"release owner", "["},
		"truncated status":        {"status", `{"delegated-ipam":{`},
		"bad time in a status":    {"status", `{"delegated-ipam":{"started":"x"}}`},
		"truncated allocation":    {"allocate", "{"},
		"bad address allocated":   {"allocate", `{"address":{"ipv4":"x"}}`},
		"allocation without body": {"allocate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := start(t, response{code: 200, body: tt.body})
			if err := calls[tt.call](t.Context(), c); err == nil || errors.Is(err, client.ErrNotDaemon) {
				t.Errorf("got %v; want an error of decoding", err)
			}
		})
	}
}
