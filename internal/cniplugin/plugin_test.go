package cniplugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/delegated-ipam/delegated-ipam/internal/cniconf"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// binDir has the plugin.
var binDir string

func TestMain(m *testing.M) {
	flag.Parse()
	code := 1
	var err error
	if binDir, err = os.MkdirTemp("", "cniplugin"); err == nil {
		err = build(filepath.Join(binDir, Type))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(binDir)
	os.Exit(code)
}

// build builds the plugin. If the coverage of the tests is kept, that of its processes is too.
func build(path string) error {
	args := []string{"build", "-o", path}
	if dir := flag.Lookup("test.gocoverdir").Value.String(); dir != "" {
		args = append(args, "-cover", "-covermode=atomic", "-coverpkg=./internal/cniplugin,./cmd/delegated-ipam-cni")
		os.Setenv("GOCOVERDIR", dir)
	}
	cmd := exec.Command("go", append(args, "./cmd/delegated-ipam-cni")...)
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	return cmd.Run()
}

// plugin is a call of the plugin as a process.
type plugin struct {
	command string
	// config is the configuration; empty for that of the socket.
	config  string
	environ []string
	// impatient waits for a second and not for a minute.
	impatient bool
}

// run returns what the process printed and its error, nil after exit code 0.
func (p plugin) run(t *testing.T, socket string) (stdout string, failed *types.Error) {
	t.Helper()
	cmd := exec.Command(filepath.Join(binDir, Type))
	cmd.Env = p.env()
	config := cmp.Or(p.config, configWith(socket, "1.1.0"))
	if p.impatient {
		config = strings.Replace(config, `"timeout":60`, `"timeout":1`, 1)
	}
	cmd.Stdin = strings.NewReader(config)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if stderr.Len() > 0 && p.command != "" {
		t.Errorf("stderr: %s", &stderr)
	}
	if err == nil {
		return string(out), nil
	}
	failed = &types.Error{}
	if decodeErr := json.Unmarshal(out, failed); decodeErr != nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %v, printed %q; want exit code 1 and a CNI error", p.command, err, out)
	}
	return "", failed
}

// env returns the environment of the process.
func (p plugin) env() []string {
	env := append(os.Environ(), "CNI_COMMAND="+p.command, "CNI_CONTAINERID=0123abcd", "CNI_IFNAME=eth0",
		"CNI_NETNS=/run/netns/none", "CNI_PATH=/opt/cni/bin", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web-0")
	return append(env, p.environ...)
}

func configWith(socket, cniVersion string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":"pods","type":"cilium-cni","args":{"cni":{"ips":["10.1.0.9"]}},"runtimeConfig":{"ips":["10.1.0.9/24"]},
		"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}],
		"ipam":{"type":"delegated-ipam-cni","socket":%q,"timeout":60,"spool":"/proc/none","delegate":{"type":"host-local","socket":{},"timeout":"5s","delegate":true}}}`, cniVersion, socket)
}

// serve listens at a new socket and serves each request with the next of the handlers; the last
// one serves the rest.
func serve(t *testing.T, handlers ...http.HandlerFunc) (socket string) {
	t.Helper()
	var served atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers[min(int(served.Add(1)), len(handlers))-1](w, r)
	}))
	s.Listener.Close()
	s.Listener, socket = listen(t)
	s.Start()
	t.Cleanup(s.Close)
	return socket
}

func listen(t *testing.T) (l net.Listener, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	check.Must(t, err)
	return l, socket
}

// responds answers each request with a code, a body and header fields in pairs.
func responds(code int, body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// writes answers each request with text and closes the connection.
func writes(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			defer conn.Close()
			_, _ = io.WriteString(conn, text)
		}
	}
}

const result = `{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.2/24","gateway":"10.1.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{}}`

func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 3<<10) // net/http sends it without a length to HTTP/1.0
	type handlers = []http.HandlerFunc
	for name, tt := range map[string]struct {
		handlers handlers
		// code and texts are of the error of ADD, DEL, CHECK and GC; 0 for success.
		code  uint
		texts []string
	}{
		"200":                    {handlers{responds(200, result)}, 0, nil},
		"200 without a length":   {handlers{responds(200, strings.Replace(result, `"dns":{}`, `"dns":{"domain":"`+long+`"}`, 1))}, 0, nil},
		"400":                    {handlers{responds(400, `"ifname is \"eth 0\""`)}, types.ErrInvalidNetworkConfig, []string{"400", `ifname is "eth 0"`}},
		"403":                    {handlers{responds(403, `"uid 7 may not"`)}, errFailed, []string{"403", "uid 7 may not"}},
		"404":                    {handlers{responds(404, `"serves the network kube"`)}, types.ErrInvalidNetworkConfig, []string{"404", "serves the network kube", "same configuration"}},
		"422":                    {handlers{responds(422, `"ifname in body is required"`)}, types.ErrInvalidNetworkConfig, []string{"422", "ifname in body is required"}},
		"502":                    {handlers{responds(502, `"plugin host-local ADD: no IP addresses available"`)}, errFailed, []string{"502", "no IP addresses available"}},
		"502 without a reason":   {handlers{responds(502, "")}, errFailed, []string{"502", "no reason given"}},
		"502 after long":         {handlers{responds(502, `"hangs"`, "Retry-After", "5"), responds(502, `"hangs"`, "Retry-After", "5"), responds(200, result)}, types.ErrTryAgainLater, []string{"502", "hangs"}},
		"502 for a moment":       {handlers{responds(502, `"the queue is full"`, "Retry-After", "0"), responds(200, result)}, errFailed, []string{"502", "the queue is full"}},
		"cut, then 200":          {handlers{writes(""), writes("HTTP/1.0 200 OK\r\nConte"), writes("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}"), responds(200, result)}, 0, nil},
		"cut":                    {handlers{writes("HTTP/1.0 200 OK\r\nContent-Length: 900\r\n\r\n{}")}, types.ErrTryAgainLater, []string{"unexpected EOF"}},
		"too long":               {handlers{responds(200, strings.Repeat("x", maxResponse+1))}, errFailed, []string{"more than 1048576 bytes"}},
		"too long by its length": {handlers{writes("HTTP/1.0 200 OK\r\nContent-Length: 1048577\r\n\r\n")}, errFailed, []string{"1048577 bytes; expected at most 1048576"}},
		"endless header":         {handlers{writes("HTTP/1.0 200 OK\r\nX: " + strings.Repeat("x", maxResponse))}, errFailed, []string{"more than 1048576 bytes"}},
		"not HTTP":               {handlers{writes("SSH-2.0-x\r\n")}, errFailed, []string{`not answer HTTP, but "SSH-2.0-x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands := []string{"ADD", "DEL", "CHECK", "GC"}
			repeated := tt.code == types.ErrTryAgainLater
			if repeated {
				commands = commands[:2] // each takes a second
			}
			for _, command := range commands {
				socket := serve(t, tt.handlers...)
				printed, err := plugin{command: command, impatient: repeated}.run(t, socket)
				checkError(t, command, err, tt.code, append(tt.texts, socket)...)
				if command == "ADD" && tt.code == 0 && !strings.Contains(printed, `"10.1.0.2/24"`) {
					t.Errorf("ADD printed %s; want the result", printed)
				}
				if command != "ADD" && printed != "" {
					t.Errorf("%s printed %q; want nothing", command, printed)
				}
			}
		})
	}
}

func checkError(t *testing.T, what string, err *types.Error, code uint, texts ...string) {
	t.Helper()
	if code == 0 {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if err == nil || err.Code != code {
		t.Fatalf("%s: got %+v; want code %d", what, err, code)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %q; want %q in it", what, err, text)
		}
	}
}

// A daemon that asks to come back soon is asked again within the limit.
func TestRepeatAfter(t *testing.T) {
	s := daemon{serve(t, responds(502, `"full"`, "Retry-After", "1"), responds(200, result)), defaultTimeout, daemonWait}
	if body, err := s.call("POST /v1/cni/add", "", nil); err != nil || string(body) != result {
		t.Errorf("got %q, %v; want the second response", body, err)
	}
}

// A runtime kills the plugin that delegates, and not this one. It calls DEL next, after which no ADD may come, and no GC with
// an old list.
func TestCallerKilled(t *testing.T) {
	for _, command := range []string{"ADD", "CHECK", "GC"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			started, requests := make(chan *os.Process, 1), make(chan struct{}, 2)
			socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
				requests <- struct{}{}
				caller := <-started
				check.NoError(t, caller.Kill())
				_, err := caller.Wait()
				check.NoError(t, err)
				writes("")(w, r)
			}, func(http.ResponseWriter, *http.Request) { requests <- struct{}{} })
			caller := exec.Command("sh", "-c", `"$0"; :`, filepath.Join(binDir, Type))
			caller.Env, caller.Stdin = plugin{command: command}.env(), strings.NewReader(configWith(socket, "1.1.0"))
			stdout, err := caller.StdoutPipe()
			check.Must(t, err)
			check.Must(t, caller.Start())
			started <- caller.Process
			_, err = io.ReadAll(stdout) // until both have ended
			check.Must(t, err)
			check.Equal(t, "requests", len(requests), 1)
		})
	}
}

func TestNoDaemon(t *testing.T) {
	l, refused := listen(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	l, closes := listen(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
		}
	}()
	hangs := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // then the server notices that the client has disconnected
		<-r.Context().Done()
	})
	absent := filepath.Join(t.TempDir(), "absent")
	for name, tt := range map[string]struct{ socket, text string }{
		"no socket":   {absent, "start delegated-ipam on this node"},
		"no listener": {refused, "connection refused; start delegated-ipam on this node"},
		"closed":      {closes, "the daemon at "},
		"no answer":   {hangs, "no answer from the daemon at " + hangs + " within 1s; it completes"},
	} {
		for _, command := range []string{"ADD", "DEL", "STATUS"} {
			t.Run(name+" "+command, func(t *testing.T) {
				t.Parallel()
				code := types.ErrTryAgainLater
				if command == "STATUS" {
					code = types.ErrPluginNotAvailable
				}
				_, err := plugin{command: command, impatient: true}.run(t, tt.socket)
				checkError(t, command, err, code, tt.socket, tt.text)
			})
		}
	}
	_, failed := plugin{command: "ADD"}.run(t, "/"+strings.Repeat("x", 200))
	checkError(t, "path that is too long", failed, errFailed, "invalid argument")
}

// A call that begins before the daemon listens succeeds.
func TestDaemonStartsLate(t *testing.T) {
	late := filepath.Join(t.TempDir(), "late")
	done := make(chan error, 1)
	go func() {
		_, err := daemon{late, defaultTimeout, daemonWait}.call("POST /v1/cni/add", "", nil)
		done <- err
	}()
	check.Must(t, os.Rename(serve(t, responds(200, result)), late))
	check.Must(t, <-done)
}

func TestStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		body string
		code uint
		text string
	}{
		"ready":     {`{"cilium":{"state":"Ok","msg":"v1"}}`, 0, ""},
		"not ready": {`{"cilium":{"state":"Warning","msg":"v1    not ready: no plugin"}}`, types.ErrPluginNotAvailable, "no plugin"},
		"no state":  {`{}`, types.ErrPluginNotAvailable, "not ready"},
		"no JSON":   {`x`, types.ErrPluginNotAvailable, "cannot be read"},
	} {
		var got string
		socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got = r.Method + " " + r.URL.Path + " " + r.Header.Get("brief") + " " + r.Header.Get("network")
			_, _ = io.WriteString(w, tt.body)
		})
		_, err := plugin{command: "STATUS", impatient: true}.run(t, socket)
		checkError(t, name, err, tt.code, tt.text)
		if want := "GET /v1/healthz true pods"; got != want {
			t.Errorf("%s: sent %q; want %q", name, got, want)
		}
	}
}

// STATUS waits for a daemon that restarts: that stops, is away and begins to serve.
func TestStatusOfRestart(t *testing.T) {
	stopping, ready := responds(200, `{"cilium":{"state":"Warning","msg":"the service is stopping"}}`), responds(200, `{"cilium":{"state":"Ok"}}`)
	_, err := plugin{command: "STATUS"}.run(t, serve(t, stopping, writes(""), stopping, ready))
	checkError(t, "STATUS", err, 0)
}

// received returns the path and the body of the request that a call sends.
func received(t *testing.T, p plugin) (path, body string) {
	t.Helper()
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		path, body = r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"), string(sent)
		_, _ = io.WriteString(w, result)
	})
	if _, err := p.run(t, socket); err != nil {
		t.Fatal(err)
	}
	return path, body
}

func TestRequests(t *testing.T) {
	const attachment = `{"network":"pods","container-id":"0123abcd","ifname":"eth0","netns":"/run/netns/none","args":"IgnoreUnknown=1;K8S_POD_NAME=web-0",` +
		`"cni-args":{"cni":{"ips":["10.1.0.9"]}},"runtime-config":{"ips":["10.1.0.9/24"]}}`
	for command, want := range map[string]string{
		"ADD": attachment, "DEL": attachment, "CHECK": attachment,
		"GC": `{"network":"pods","valid-attachments":[{"container-id":"a","ifname":"eth0"}]}`,
	} {
		path, body := received(t, plugin{command: command})
		if want := "POST /v1/cni/" + strings.ToLower(command) + " application/json"; path != want {
			t.Errorf("%s: sent %s; want %s", command, path, want)
		}
		if body != want {
			t.Errorf("%s: sent %s; want %s", command, body, want)
		}
	}
	_, body := received(t, plugin{command: "DEL", environ: []string{"CNI_NETNS=", "CNI_ARGS="}})
	if strings.Contains(body, "netns") || strings.Contains(body, `"args"`) {
		t.Errorf("DEL without a namespace sent %s", body)
	}
}

func TestConfig(t *testing.T) {
	for ipam, texts := range map[string][]string{
		`{"type":"host-local"}`:                                                                          {`ipam.type is "host-local"`, `expected "delegated-ipam-cni"`},
		`{"type":"delegated-ipam-cni"}`:                                                                  {"ipam.delegate names no plugin", `"delegate": {"type": "host-local"`},
		`{"type":"delegated-ipam-cni","delegate":{"ranges":[]}}`:                                         {"ipam.delegate names no plugin"},
		`{"type":"delegated-ipam-cni","delegate":{"type":"delegated-ipam-cni"}}`:                         {"ipam.delegate.type", "would call itself"},
		`{"type":"delegated-ipam-cni","delegate":{"type":"x","delegate":{"type":"delegated-ipam-cni"}}}`: {"ipam.delegate.delegate.type"},
		`{"type":"delegated-ipam-cni","delegate":null}`:                                                  {"ipam.delegate names no plugin"},
		`{"type":"delegated-ipam-cni","delegate":true}`:                                                  {"ipam.delegate: ", "expected the ipam section"},
		`{"type":"delegated-ipam-cni","delegate":{"type":"x"},"socket":"run/ipam.sock"}`:                 {`ipam.socket is "run/ipam.sock"`, "absolute path"},
		`{"type":"delegated-ipam-cni","delegate":{"type":"x"},"socket":"@ipam"}`:                         {`ipam.socket is "@ipam"`},
		`{"type":"delegated-ipam-cni","delegate":{"type":"x"},"timeout":0}`:                              {"ipam.timeout is 0", "1 to 110"},
		`{"type":"delegated-ipam-cni","delegate":{"type":"x"},"timeout":111}`:                            {"ipam.timeout is 111"},
	} {
		_, err := parseConfig([]byte(`{"cniVersion":"1.1.0","name":"pods","ipam":` + ipam + `}`))
		var failed *types.Error
		if !errors.As(err, &failed) {
			t.Fatalf("%s: got %v", ipam, err)
		}
		checkError(t, ipam, failed, types.ErrInvalidNetworkConfig, append(texts, "network pods: ")...)
	}
	for _, command := range []string{"ADD", "DEL", "CHECK", "GC", "STATUS"} {
		_, err := plugin{command: command, config: `{"cniVersion":"1.1.0","name":"pods","ipam":{"timeout":"1s"}}`}.run(t, "")
		checkError(t, command, err, types.ErrDecodingFailure, "timeout", "expected such as")
	}
	valid := `{"cniVersion":"1.1.0","name":"pods","ipam":{"type":"delegated-ipam-cni","delegate":{"type":"x","delegate":{"type":"y"}}}}`
	_, gcErr := plugin{command: "GC", config: valid}.run(t, "")
	checkError(t, "GC without a list", gcErr, types.ErrInvalidNetworkConfig, "no list of attachments")
	if Type != cniconf.ContainerPlugin {
		t.Errorf("the type is %s; the daemon expects %s", Type, cniconf.ContainerPlugin)
	}
	c, parseErr := parseConfig([]byte(valid))
	if parseErr != nil || c.daemon() != (daemon{client.DefaultSocket, client.DefaultTimeout, daemonWait}) {
		t.Errorf("got the daemon %+v, %v; want the defaults of pkg/client", c.daemon(), parseErr)
	}
}

// libcni writes the list of a runtime without containers as null.
func TestEmptyLists(t *testing.T) {
	for _, list := range []string{"null", "[]"} {
		config := strings.Replace(configWith("SOCKET", "1.1.0"), `[{"containerID":"a","ifname":"eth0"}]`, list, 1)
		socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if body, _ := io.ReadAll(r.Body); string(body) != `{"network":"pods","valid-attachments":[]}` {
				t.Errorf("GC with the list %s sent %s", list, body)
			}
		})
		_, err := plugin{command: "GC", config: strings.Replace(config, "SOCKET", socket, 1)}.run(t, socket)
		checkError(t, "GC with the list "+list, err, 0)
	}
}

// multus up to v4.3 passes the type of the ipam section alone, so that the socket is the default one.
func TestReducedConfig(t *testing.T) {
	for _, section := range []string{`{"type":"delegated-ipam-cni"}`, `{"type":"delegated-ipam-cni","delegate":{"type":"delegated-ipam-cni"}}`, `{"type":"delegated-ipam-cni","delegate":true}`} {
		stdin := []byte(`{"cniVersion":"0.3.0","name":"pods","type":"bridge","ipam":` + section + `}`)
		c, err := parseReduced(stdin)
		if err != nil || c.Name != "pods" || c.daemon().socket != client.DefaultSocket {
			t.Errorf("%s: got %+v, %v", section, c, err)
		}
		if _, err := parseConfig(stdin); err == nil {
			t.Errorf("%s: accepted for ADD", section)
		}
	}
	for _, command := range []string{"DEL", "CHECK", "GC"} {
		socket := serve(t, responds(200, ""))
		config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"pods","cni.dev/valid-attachments":null,"ipam":{"type":"delegated-ipam-cni","socket":%q}}`, socket)
		_, err := plugin{command: command, config: config}.run(t, socket)
		checkError(t, command, err, 0)
	}
}

// Results of each CNI version, converted to each.
func TestResultVersions(t *testing.T) {
	versions := []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
	for _, from := range versions {
		body := strings.Replace(result, "1.0.0", from, 1)
		if strings.HasPrefix(from, "0.") {
			body = strings.Replace(body, `"address"`, `"version":"4","address"`, 1)
		}
		for _, to := range versions {
			socket := serve(t, responds(200, body))
			printed, err := plugin{command: "ADD", config: configWith(socket, to)}.run(t, socket)
			checkError(t, from+" to "+to, err, 0)
			got, parseErr := create.CreateFromBytes([]byte(printed))
			if parseErr != nil || got.Version() != to || strings.Contains(printed, `"version"`) != strings.HasPrefix(to, "0.") {
				t.Errorf("%s to %s: printed %s, %v", from, to, printed, parseErr)
			}
			for _, part := range []string{`"10.1.0.2/24"`, `"10.1.0.1"`, `"0.0.0.0/0"`} {
				if !strings.Contains(printed, part) {
					t.Errorf("%s to %s: printed %s; want %s in it", from, to, printed, part)
				}
			}
		}
	}
	for _, bad := range []string{"", "null", "[]", "{}", `{"cniVersion":"1.0.0","ips":[null]}`, `{"cniVersion":"9.0.0"}`} {
		socket := serve(t, responds(200, bad))
		_, err := plugin{command: "ADD", config: configWith(socket, "0.3.1")}.run(t, socket)
		checkError(t, "result "+bad, err, types.ErrDecodingFailure, "not usable as one of CNI version 0.3.1")
	}
}

func TestVersion(t *testing.T) {
	printed, err := plugin{command: "VERSION"}.run(t, "")
	if want := `"supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`; err != nil || !strings.Contains(printed, want) {
		t.Errorf("got %s, %v; want %s", printed, err, want)
	}
	for _, command := range []string{"ADD", "DEL"} {
		_, err := plugin{command: command, config: configWith("/x", "0.2.0")}.run(t, "")
		checkError(t, command+" with 0.2.0", err, types.ErrIncompatibleCNIVersion)
	}
	if _, err := (plugin{command: ""}).run(t, ""); err != nil {
		t.Errorf("without a command: %v", err)
	}
}

// libcni calls the plugin as the runtime's plugin delegates to it.
func TestLibCNI(t *testing.T) {
	var paths []string
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.Path)
		if r.URL.Path == "/v1/healthz" {
			_, _ = io.WriteString(w, `{"cilium":{"state":"Ok"}}`)
		} else if r.URL.Path == "/v1/cni/add" {
			_, _ = io.WriteString(w, result)
		}
	})
	list, err := libcni.ConfListFromBytes(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":%q,
		"ipam":{"type":%q,"socket":%q,"delegate":{"type":"host-local"}}}]}`, Type, Type, socket))
	check.Must(t, err)
	cni := libcni.NewCNIConfigWithCacheDir([]string{binDir}, t.TempDir(), nil)
	attachment := &libcni.RuntimeConf{ContainerID: "0123abcd", NetNS: "/run/netns/none", IfName: "eth0"}
	ctx := t.Context()
	check.Must(t, cni.GetStatusNetworkList(ctx, list))
	if got, err := cni.AddNetworkList(ctx, list, attachment); err != nil || got.Version() != "1.1.0" {
		t.Errorf("ADD returned %v, %v", got, err)
	}
	check.Must(t, cni.CheckNetworkList(ctx, list, attachment))
	check.Must(t, cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: "0123abcd", IfName: "eth0"}}}))
	check.Must(t, cni.DelNetworkList(ctx, list, attachment))
	want := "[GET /v1/healthz POST /v1/cni/add POST /v1/cni/check POST /v1/cni/gc POST /v1/cni/del]"
	if got := fmt.Sprint(paths); got != want {
		t.Errorf("sent %s; want %s", got, want)
	}
}

// The imports are the time to start.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../cmd/delegated-ipam-cni").Output()
	check.Must(t, err)
	for _, pkg := range strings.Fields(string(out)) {
		for _, slow := range []string{"net/http", "github.com/go-openapi/", "github.com/spf13/", "github.com/sirupsen/", "k8s.io/", "text/template"} {
			if strings.HasPrefix(pkg, slow) {
				t.Errorf("the plugin imports %s", pkg)
			}
		}
	}
}
