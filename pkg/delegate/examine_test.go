package delegate

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

func TestAnExaminationSaysWhatAContextWouldHaveAndRunsNothingButVERSION(t *testing.T) {
	b := newBench(t)
	b.script(call.VerbVersion, `{"versions":["0.4.0","1.0.0"]}`)
	got, want := b.runner.Inspect(t.Context(), b.network), b.context("id")
	if got.Err != nil || errors.Join(got.FindErr, got.VersionErr, got.StateErr, got.NetNSErr) != nil {
		t.Errorf("got %+v; want no error", got)
	}
	if got.Plugin != want.Plugin || got.Binary != want.Binary || got.CNIVersion != want.CNIVersion || got.NetNS != want.NetNS || got.Profile.Type != want.Profile.Type {
		t.Errorf("got %+v; want what the context has: %+v", got, want)
	}
	if !slices.Equal(got.Versions, []string{"0.4.0", "1.0.0"}) {
		t.Errorf("the versions are %q; want those of the plugin", got.Versions)
	}
	for _, verb := range []string{call.VerbAdd, call.VerbDel, call.VerbCheck, call.VerbStatus} {
		if n := len(b.calls(verb)); n != 0 {
			t.Errorf("%s was run %d times", verb, n)
		}
	}
}

func TestAStepOfAnExaminationThatFailsHidesNoOther(t *testing.T) {
	b := newBench(t, func(o *Options) { o.InPod = true })
	b.network.PluginConfig = []byte(`{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"/"}}`)
	got := b.runner.Inspect(t.Context(), b.network)
	for what, err := range map[string]error{"FindErr": got.FindErr, "StateErr": got.StateErr, "Err": got.Err} {
		if err == nil {
			t.Errorf("%s is nil in %+v", what, got)
		}
	}
	if got.StateDir != "/" || got.StateKey != "dataDir" || got.NetNSErr != nil || got.NetNS == "" {
		t.Errorf("got %+v; want the folder and a namespace all the same", got)
	}
}

func TestAnExaminationOfWhatNamesNoPluginHasOnlyAnError(t *testing.T) {
	b := newBench(t)
	for _, config := range []string{`{"type":"cilium-cni"}`, `[]`} {
		b.network.PluginConfig = []byte(config)
		if got := b.runner.Inspect(t.Context(), b.network); got.Err == nil || got.Plugin != "" || got.Binary != "" {
			t.Errorf("%s: got %+v; want an error and nothing else", config, got)
		}
	}
}

func TestOnlyANamespaceOfOurOwnIsRefused(t *testing.T) {
	for path, refused := range map[string]string{
		"/proc/self/ns/net": "is our own", "relative": "absolute",
		"": "", EphemeralNetNS: "", DefaultNetNS: "",
	} {
		err := CheckNetNS(path)
		if (err != nil) != (refused != "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%q: got %v; want %q", path, err, refused)
		}
	}
}
