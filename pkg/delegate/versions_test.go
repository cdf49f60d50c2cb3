package delegate

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

func TestTheRealHostLocalIsSpokenToInItsHighestVersion(t *testing.T) {
	for name, c := range map[string]struct {
		folder, version string
		status          bool
	}{
		"host-local of plugins v1.9.1": {realPlugins, "1.1.0", true},
		"host-local of plugins v1.4.0": {oldPlugins, "1.0.0", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := benchOf(t, c.folder, dualStack, `{}`)
			target := b.call("id")
			if got := target.Invocation; got.CNIVersion != c.version || got.HasStatus() != c.status || !got.HasCheck() {
				t.Errorf("got CNI version %s with STATUS %v and CHECK %v, want %s with %v and true", got.CNIVersion, got.HasStatus(), got.HasCheck(), c.version, c.status)
			}
			got, err := b.runner.Add(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if text := describe(got); text != first {
				t.Errorf("got %s, want %s", text, first)
			}
			if want := `{"cniVersion":"` + c.version + `",`; !strings.HasPrefix(string(got.Raw), want) {
				t.Errorf("got the raw result %s, want it to begin %s", got.Raw, want)
			}
			wantError(t, b.run(call.VerbAdd, target), call.Refused, "duplicate allocation is not allowed")
			target.PrevResult = got.Raw
			for _, verb := range []string{call.VerbCheck, call.VerbStatus, call.VerbDel, call.VerbDel} {
				b.must(verb, target)
			}
			b.holdsFiles()
			err = b.run(call.VerbCheck, target)
			if wantError(t, err, call.Refused, "Failed to find address"); !call.IsLost(target.Invocation, err) {
				t.Errorf("got not lost after a DEL: %v", err)
			}
			target.Requested = asked(addrs("10.1.0.77", "fd00::77")...)
			if got := b.add(target); got != "10.1.0.77/24 via 10.1.0.1, fd00::77/120 via fd00::1" {
				t.Errorf("got %s, want the addresses asked for", got)
			}
		})
	}
}

func TestARecordOfANewerHostLocalIsGivenBackByAnOlderOne(t *testing.T) {
	b := benchOf(t, oldPlugins, dualStack, `{}`)
	target := b.call("id")
	target.PrevResult = []byte(goodResult) // of CNI 1.1.0, and the old one speaks 1.0.0
	b.add(target)
	b.must(call.VerbCheck, target)
	b.must(call.VerbDel, target)
	b.holdsFiles()
}

func TestAPluginThatKnowsNothingAbove031HasNoCheckAndGetsNoPrevResult(t *testing.T) {
	b := newBench(t)
	b.script(call.VerbVersion, `{"versions":["0.1.0","0.2.0","0.3.0","0.3.1"]}`)
	target := b.call("id")
	if got := target.Invocation; got.CNIVersion != "0.3.1" || got.HasCheck() || got.HasStatus() {
		t.Errorf("got CNI version %s with CHECK %v and STATUS %v, want 0.3.1 with neither", got.CNIVersion, got.HasCheck(), got.HasStatus())
	}
	got, err := b.runner.Add(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	if text := describe(got); text != first {
		t.Errorf("got %s, want %s", text, first)
	}
	target.PrevResult = got.Raw
	b.must(call.VerbStatus, target)
	b.must(call.VerbDel, target)
	b.stores()
	if got := b.stdin(call.VerbDel, "prevResult"); got != "" {
		t.Errorf("DEL got prevResult %s, which CNI 0.3.1 does not have", got)
	}
	if n := len(b.calls(call.VerbStatus)) + len(b.calls(call.VerbCheck)); n != 0 {
		t.Errorf("the plugin saw %d CHECKs and STATUSes, want none", n)
	}
}

func TestAPluginThatFailsVersionIsNamedWithItsOwnWords(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		outcome call.Outcome
		text    string
	}{
		"it refuses":           {`{"error":` + goodError + `}`, call.Refused, "refused (code 999): no; none left"},
		"it crashes":           {`{"exitCode":2,"stderr":"panic: no such thing"}`, call.Unknown, "panic: no such thing"},
		"it prints nonsense":   {`{"stdout":"hello"}`, call.Unknown, "VERSION"},
		"it prints no version": {`{"stdout":"{}"}`, call.Unknown, "VERSION"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.script(call.VerbVersion, c.script)
			_, err := b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
			wantError(t, err, c.outcome, c.text)
			wantText(t, err, `network "net"`, "plugin scripted VERSION")
			if n := len(b.calls(call.VerbAdd)); n != 0 {
				t.Errorf("the plugin saw %d ADDs, want none", n)
			}
		})
	}
}

// Trap: a dynamically linked plugin in an image without its loader.
func TestADynamicallyLinkedPluginWithoutItsLoaderIsExplained(t *testing.T) {
	b := newBench(t)
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler; start_test.go shows the same with a file made by hand")
	}
	path := b.bin + "/dynamic"
	build := exec.Command(compiler, "-x", "c", "-Wl,--dynamic-linker=/no/such/loader.so", "-o", path, "-")
	build.Stdin = strings.NewReader("int main(void) { return 0; }\n")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("a program cannot be linked here: %v\n%s", err, out)
	}
	b.network.PluginConfig = []byte(`{"ipam":{"type":"dynamic"}}`)
	_, err = b.runner.NewInvocation(t.Context(), b.network, "id", "owner")
	wantError(t, err, call.NotStarted, "the file is there, but the loader /no/such/loader.so that it needs is not: install a statically linked build")
}
