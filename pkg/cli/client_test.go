package cli

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/doctor"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// bothFamilies is an answer to an allocation.
const bothFamilies = `{"address":{"ipv4":"10.15.0.2","ipv4-pool-name":"default","ipv6":"fd00:15::2"},"host-addressing":{}}`

func TestAllocatePrintsTheBareAddresses(t *testing.T) {
	tests := map[string]struct {
		args   []string
		body   string
		stdout string
		asked  string
	}{
		"both families of an owner": {
			[]string{"allocate", "router"},
			bothFamilies, "10.15.0.2\nfd00:15::2\n", "POST /v1/ipam?owner=router",
		},
		"one family of a pool": {
			[]string{"allocate", "kube-system/a", "--family", "ipv6", "--pool", "blue"},
			`{"address":{"ipv6":"fd00::9"},"host-addressing":{}}`, "fd00::9\n", "POST /v1/ipam?family=ipv6&owner=kube-system%2Fa&pool=blue",
		},
		"an address that must be confirmed": {
			[]string{"allocate", "pod", "--expiration"},
			`{"address":{"ipv4":"10.15.0.7"},"host-addressing":{}}`, "10.15.0.7\n", "POST /v1/ipam?owner=pod expiration=true",
		},
		"everything as JSON": {
			[]string{"allocate", "router", "-o", "json"},
			`{"address":{"ipv4":"10.15.0.2"},"host-addressing":{}}`,
			"{\n  \"address\": {\n    \"ipv4\": \"10.15.0.2\"\n  },\n  \"host-addressing\": {}\n}\n", "POST /v1/ipam?owner=router",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := startSidecar(t, map[string][]answer{"POST /v1/ipam": {jsonAnswer(201, tt.body)}})
			s.program().runHere(t, tt.args...).wants(t, option.Done, tt.stdout)
			if got := s.requests(); !slices.Equal(got, []string{tt.asked}) {
				t.Errorf("the sidecar was asked %q; want %q", got, tt.asked)
			}
		})
	}
}

func TestRestoreAndReleaseSayWhatTheyDid(t *testing.T) {
	tests := map[string]struct {
		args   []string
		stdout string
		asked  string
	}{
		"restore":                {[]string{"restore", "10.15.0.2", "router"}, "restored 10.15.0.2 for router\n", "POST /v1/ipam/10.15.0.2?owner=router"},
		"restore in a pool":      {[]string{"restore", "10.15.0.2", "router", "--pool=blue"}, "restored 10.15.0.2 for router\n", "POST /v1/ipam/10.15.0.2?owner=router&pool=blue"},
		"restore with JSON":      {[]string{"restore", "fd00::2", "router", "-o=json"}, "{\n  \"ip\": \"fd00::2\",\n  \"owner\": \"router\",\n  \"pool\": \"default\"\n}\n", "POST /v1/ipam/fd00::2?owner=router"},
		"release":                {[]string{"release", "10.15.0.2"}, "released 10.15.0.2 of pool default\n", "DELETE /v1/ipam/10.15.0.2?pool=default"},
		"release in a pool":      {[]string{"release", "fd00::2", "--pool=blue"}, "released fd00::2 of pool blue\n", "DELETE /v1/ipam/fd00::2?pool=blue"},
		"release with JSON":      {[]string{"release", "10.15.0.2", "-o=json"}, "{\n  \"ip\": \"10.15.0.2\",\n  \"pool\": \"default\"\n}\n", "DELETE /v1/ipam/10.15.0.2?pool=default"},
		"release, at once":       {[]string{"release", "10.15.0.2", "--skip-release-delay"}, "released 10.15.0.2 of pool default\n", "DELETE /v1/ipam/10.15.0.2?pool=default skip-release-delay=true"},
		"release, switches last": {[]string{"release", "10.15.0.2", "--all=false"}, "released 10.15.0.2 of pool default\n", "DELETE /v1/ipam/10.15.0.2?pool=default"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			yes := []answer{{code: 200}}
			s := startSidecar(t, map[string][]answer{
				"POST /v1/ipam/10.15.0.2": yes, "POST /v1/ipam/fd00::2": yes, "DELETE /v1/ipam/10.15.0.2": yes, "DELETE /v1/ipam/fd00::2": yes,
			})
			s.program().runHere(t, tt.args...).wants(t, option.Done, tt.stdout)
			if got := s.requests(); !slices.Equal(got, []string{tt.asked}) {
				t.Errorf("the sidecar was asked %q; want %q", got, tt.asked)
			}
		})
	}
}

func TestARefusalEndsWithStatus1AndItsReason(t *testing.T) {
	allocate, restore, release := []string{"allocate", "router"}, []string{"restore", "10.0.0.1", "router"}, []string{"release", "10.0.0.1", "--pool=blue"}
	list := []string{"list"}
	tests := map[string]struct {
		args   []string
		answer answer
		says   []string
	}{
		"an allocation that the plugin refused": {allocate, jsonAnswer(502, `"no addresses left in pods"`), []string{"Error: allocate router: no addresses left in pods\n"}},
		"an allocation that must wait":          {allocate, answer{502, "application/json", "5", `"the queue is full"`}, []string{"the queue is full (try again in 5s)"}},
		"an owner that is not admitted":         {allocate, answer{code: 403}, []string{"not admitted", `"router"`, "--owners", "--allow-uids"}},
		"a parameter that is refused":           {allocate, jsonAnswer(422, `{"code":604,"message":"owner in query is too long"}`), []string{"allocate router: owner in query is too long"}},
		"an internal error":                     {allocate, jsonAnswer(500, `{"code":500,"message":"internal error"}`), []string{"internal error"}},
		"a code that nobody knows":              {allocate, answer{code: 418}, []string{"418", "I'm a teapot"}},
		"an answer of another program":          {allocate, answer{404, "text/plain", "", "404 page not found\n"}, []string{"404 page not found"}},
		"an allocation without an address":      {allocate, jsonAnswer(201, `{}`), []string{"without an address"}},

		"a restore of a malformed address":    {restore, answer{code: 400}, []string{"restore 10.0.0.1 for router", `does not take "10.0.0.1"`}},
		"a restore that is not admitted":      {restore, answer{code: 403}, []string{"not admitted", `"router"`}},
		"a restore of another one's address":  {restore, answer{code: 409}, []string{`10.0.0.1 of pool "default" belongs to another owner`, "delegated-ipam list"}},
		"a restore that the plugin refused":   {restore, jsonAnswer(500, `"asked for 10.0.0.1"`), []string{"asked for 10.0.0.1"}},
		"a restore that must wait":            {restore, answer{500, "application/json", "2", `"stopping"`}, []string{"stopping (try again in 2s)"}},
		"a restore in a family that is off":   {restore, answer{code: 501}, []string{"family of 10.0.0.1 is switched off", "--enable-ipv4"}},
		"a release of a malformed address":    {release, answer{code: 400}, []string{"release 10.0.0.1", `does not take "10.0.0.1"`}},
		"a release that is not admitted":      {release, answer{code: 403}, []string{"not admitted", "--allow-uids"}},
		"a release of an unknown address":     {release, answer{code: 404}, []string{`10.0.0.1 is not handed out in pool "blue"`}},
		"a release that the plugin refused":   {release, jsonAnswer(500, `"DEL failed"`), []string{"DEL failed"}},
		"a release in a family that is off":   {release, answer{code: 501}, []string{"family of 10.0.0.1 is switched off"}},
		"a list for who may not call":         {list, answer{code: 403}, []string{"list: not admitted", "--allow-uids"}},
		"a list of something else":            {list, jsonAnswer(404, ``), []string{"is no socket of delegated-ipam"}},
		"a status of something else":          {[]string{"status"}, jsonAnswer(200, `{"cilium":{"state":"Ok"}}`), []string{"status: ", "is no socket of delegated-ipam"}},
		"a status that nobody may see":        {[]string{"status"}, answer{code: 500}, []string{"500 Internal Server Error"}},
		"an ID when the list is refused":      {[]string{"id", "router"}, answer{code: 403}, []string{"id router: not admitted"}},
		"an ID when the status is refused":    {[]string{"id", "router", "--node-name=n"}, answer{code: 500}, []string{"id router: ", "500"}},
		"releasing all when the list refuses": {[]string{"release", "--all", "--yes"}, answer{code: 403}, []string{"release --all: not admitted"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			all := []answer{tt.answer}
			s := startSidecar(t, map[string][]answer{
				"POST /v1/ipam": all, "GET /v1/ipam": all, "GET /v1/healthz": all, "POST /v1/ipam/10.0.0.1": all, "DELETE /v1/ipam/10.0.0.1": all,
			})
			s.program().runHere(t, tt.args...).wants(t, option.Failed, "", tt.says...)
		})
	}
}

func TestWithoutASidecarTheSocketIsNamed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	other := socket + "2"
	for name, tt := range map[string]struct {
		args  []string
		names string
	}{
		"that of the environment":         {[]string{"list"}, socket},
		"that of the flag":                {[]string{"list", "-H", "unix://" + other}, other},
		"that of the flag, a path":        {[]string{"status", "--host", other}, other},
		"when everything is to be taken":  {[]string{"release", "--all", "--yes"}, socket},
		"when an ID is to be found":       {[]string{"id", "router"}, socket},
		"when an address is to be had":    {[]string{"allocate", "router"}, socket},
		"when an address is to be kept":   {[]string{"restore", "10.0.0.1", "router"}, socket},
		"when an address is to be put by": {[]string{"release", "10.0.0.1"}, socket},
	} {
		t.Run(name, func(t *testing.T) {
			p := testProgram(map[string]string{option.SocketEnv: socket})
			p.runHere(t, tt.args...).wants(t, option.Failed, "",
				"no sidecar can be reached at "+tt.names+": ", "no such file or directory", "delegated-ipam serve", "--socket-path")
		})
	}
}

func TestTheVariableOfTheSocketMayHaveTheSchemeOfTheFlag(t *testing.T) {
	s := startSidecar(t, map[string][]answer{"GET /v1/ipam": {jsonAnswer(200, "[]")}})
	testProgram(map[string]string{option.SocketEnv: "unix://" + s.socket}).runHere(t, "list", "-o", "json").wants(t, option.Done, "[]\n")
}

// silence accepts connections and never answers.
func silence(t *testing.T) (socket string, connected <-chan struct{}) {
	t.Helper()
	s := startSidecar(t, nil)
	socket = s.socket + "2"
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan struct{}, 8)
	open := make(chan net.Conn, 8)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(open)
				return
			}
			open <- c
			came <- struct{}{}
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		for c := range open {
			_ = c.Close()
		}
	})
	return socket, came
}

func TestASidecarThatDoesNotAnswerIsGivenUpAfterTheLimit(t *testing.T) {
	socket, _ := silence(t)
	p := testProgram(map[string]string{option.SocketEnv: socket})
	p.requestLimit = time.Millisecond
	p.runHere(t, "allocate", "router").wants(t, option.Failed, "", socket, "no answer within 1ms", "delegated-ipam list")
}

func TestASignalEndsTheWait(t *testing.T) {
	socket, connected := silence(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-connected
		cancel()
	}()
	var stdout, stderr strings.Builder
	code := testProgram(map[string]string{option.SocketEnv: socket}).run(ctx, []string{"allocate", "router"}, &stdout, &stderr)
	outcome{code, stdout.String(), stderr.String()}.wants(t, option.Failed, "", "interrupted", "delegated-ipam list")
}

func TestAnAnswerThatIsNoHTTPNamesTheSocket(t *testing.T) {
	s := startSidecar(t, map[string][]answer{"GET /v1/ipam": {jsonAnswer(200, "[{")}})
	s.program().runHere(t, "list").wants(t, option.Failed, "", "list: the sidecar at "+s.socket)
}

func TestAnEntryThatIsNullIsAnErrorAndNoCrash(t *testing.T) {
	for path, bodies := range map[string][]string{
		"/v1/healthz": {`{"delegated-ipam":{"pools":[null]}}`, `{"delegated-ipam":{"options":[null]}}`, `{"delegated-ipam":{"quarantined":[null]}}`},
		"/v1/ipam":    {`[null]`, `[{"owner":"router","addresses":[null]}]`},
	} {
		for _, body := range bodies {
			answers := map[string][]answer{
				"GET /v1/healthz": {jsonAnswer(200, `{"delegated-ipam":{"ready":true}}`)}, "GET /v1/ipam": {jsonAnswer(200, `[]`)},
			}
			answers["GET "+path] = []answer{jsonAnswer(200, body)}
			s := startSidecar(t, answers)
			o := s.program().runHere(t, "doctor", "-o", "json")
			if found := findings(t, o); o.code != option.Failed || !slices.ContainsFunc(found, func(f doctor.Finding) bool {
				return f.Check == doctor.CheckSidecar && strings.Contains(f.Seen, s.socket+" is no socket of delegated-ipam")
			}) {
				t.Errorf("%s: ended with %d and found %+v; want an error of the sidecar", body, o.code, found)
			}
		}
	}
}
