package delegate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// scriptedBinary is where TestMain tells its tests, and the processes that
// they start, the path of the scripted plugin.
const scriptedBinary = "DELEGATED_IPAM_TEST_SCRIPTED"

func TestMain(m *testing.M) {
	if os.Getenv(earlierLife) != "" {
		if err := liveAnEarlierLife(os.Getenv(earlierLife)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runWithScripted(m))
}

func runWithScripted(m *testing.M) int {
	dir, err := os.MkdirTemp("", "delegate-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "scripted")
	build := exec.Command("go", "build", "-o", binary, "../../test/scripted")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the scripted plugin: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(scriptedBinary, binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// bench is one scripted plugin with a runner.
type bench struct {
	t      *testing.T
	runner *Runner
	// bin is the plugin folder, scripts the script folder of the plugin in it.
	bin, scripts string
	network      call.Network
	opts         Options
	// profiles are what the runner gets when it asks.
	profiles profile.Set
}

// embeddedProfiles are those of a sidecar without --plugin-profile.
func embeddedProfiles() (profile.Set, error) { return profile.Load() }

// load is the runner's question for the profiles.
func (b *bench) load() (profile.Set, error) { return b.profiles, nil }

const pluginType = "scripted"

// newBench is a bench of a plugin that is correct until a script says otherwise.
func newBench(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	return imitate(t, pluginType, change...)
}

// imitate is a bench of a plugin that is called by the name of another, whose
// ways the scripted plugin then takes on.
func imitate(t *testing.T, pluginType string, change ...func(*Options)) *bench {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "bin")
	b := &bench{t: t, bin: bin, scripts: filepath.Join(bin, pluginType+".d")}
	if err := os.MkdirAll(b.scripts, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(os.Getenv(scriptedBinary), filepath.Join(bin, pluginType)); err != nil {
		t.Fatal(err)
	}
	b.network = call.Network{Name: "net", CNIVersion: "0.3.1", PluginConfig: json.RawMessage(
		`{"type":"cilium-cni","ipam":{"type":"` + pluginType + `","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/120"}]]}}`)}
	known, err := profile.Load()
	if err != nil {
		t.Fatal(err)
	}
	b.profiles, err = known.With(profile.File{Name: "scripted.json", Data: []byte(`{"type":"scripted","repeatedAdd":"refused","verifyBy":"check","checkProves":"presence",
		"lost":{"codes":[999],"message":"Failed to find address"},"addOutlivesSeconds":0,"del":"released","store":"node","lookup":"none",
		"requests":["args.cni.ips"],"requestForm":"address","podIdentity":"none","namespace":"any","unique":true}`)})
	if err != nil {
		t.Fatal(err)
	}
	b.opts = Options{
		BinDirs: []string{bin}, LockFile: filepath.Join(bin, "calls.lock"), Profiles: b.load,
		Timeout: time.Minute, Grace: time.Minute,
	}
	for _, f := range change {
		f(&b.opts)
	}
	b.runner, err = New(b.opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// script writes the script of a verb.
func (b *bench) script(verb, text string) {
	b.t.Helper()
	b.write(strings.ToLower(verb)+".json", text)
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.scripts, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// fifo makes a FIFO for a script's announce, and returns a function that waits
// until the plugin is there.
func (b *bench) fifo(name string) func() {
	b.t.Helper()
	path := filepath.Join(b.scripts, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return func() {
		if _, err := os.ReadFile(path); err != nil {
			b.t.Error(err)
		}
	}
}

func (b *bench) context(id string) call.Invocation {
	b.t.Helper()
	c, err := b.runner.NewInvocation(b.t.Context(), b.network, id, "owner")
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *bench) call(id string) call.Call {
	b.t.Helper()
	return call.Call{ContainerID: id, Invocation: b.context(id)}
}

// seen is one line of the scripted plugin's log.
type seen struct {
	Verb  string            `json:"verb"`
	PID   int               `json:"pid"`
	Env   map[string]string `json:"env"`
	Stdin json.RawMessage   `json:"stdin"`
}

// calls returns what the plugin saw of a verb, oldest first.
func (b *bench) calls(verb string) []seen {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.scripts, "calls.log"))
	if err != nil {
		b.t.Fatal(err)
	}
	var lines []seen
	in := bufio.NewScanner(bytes.NewReader(data))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var s seen
		if err := json.Unmarshal(in.Bytes(), &s); err != nil {
			b.t.Fatal(err)
		}
		if s.Verb == verb {
			lines = append(lines, s)
		}
	}
	return lines
}

// store returns the addresses that the scripted plugin holds, each once.
func (b *bench) store() []string {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.scripts, "store"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatal(err)
	}
	var held []string
	for _, e := range entries {
		held = append(held, e.Name())
	}
	return held
}

// stores checks the addresses that the scripted plugin holds.
func (b *bench) stores(want ...string) {
	b.t.Helper()
	if got := b.store(); !slices.Equal(got, want) {
		b.t.Errorf("the plugin holds %v, want %v", got, want)
	}
}

// add runs an ADD that must succeed, and returns its addresses.
func (b *bench) add(c call.Call) string {
	b.t.Helper()
	got, err := b.runner.Add(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return describe(got)
}

// must runs a verb that must succeed.
func (b *bench) must(verb string, c call.Call) {
	b.t.Helper()
	if err := b.run(verb, c); err != nil {
		b.t.Fatalf("%s: %v", verb, err)
	}
}

// stdin returns one key of what the last call of a verb read.
func (b *bench) stdin(verb, key string) string {
	b.t.Helper()
	calls := b.calls(verb)
	if len(calls) == 0 {
		b.t.Fatalf("the plugin saw no %s", verb)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(calls[len(calls)-1].Stdin, &object); err != nil {
		b.t.Fatal(err)
	}
	return string(object[key])
}
