package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/pkg/options"
)

// examined are the options of a start in a folder of its own, with no plugin and with
// a network for the pool "default".
func examined(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	conf := `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local"}}]}`
	if err := os.WriteFile(filepath.Join(dir, "05.conflist"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return Config{Sidecar: options.Sidecar{
		NodeName: fmt.Sprintf("examined-%d-%s", os.Getpid(), filepath.Base(dir)), StateDir: filepath.Join(dir, "state"),
		CNIConfDir: dir, CNIBinDirs: []string{dir}, Pools: map[string]string{"default": "", "blue": "blue"},
	}}
}

func TestEachPoolIsExaminedAndNothingIsMade(t *testing.T) {
	c := examined(t)
	c.CNINetNS = "/proc/self/ns/net"
	all, err := c.Inspect(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("got %+v, %v; want two pools", all, err)
	}
	first, second := all[0], all[1]
	if first.Pool != "default" || first.ConfErr != nil || first.Network.Name != "pods" || first.Plugin.FindErr == nil {
		t.Errorf("got %+v; want the network, and that its plugin is not found", first)
	}
	if first.NetNSErr == nil || !strings.Contains(first.NetNSErr.Error(), "is our own") || first.Plugin.NetNS == "" {
		t.Errorf("got %+v; want the namespace refused and the rest looked at", first)
	}
	if second.Pool != "blue" || second.ConfErr == nil {
		t.Errorf("got %+v; want no network", second)
	}
	if _, err := os.Lstat(c.StateDir); !os.IsNotExist(err) {
		t.Errorf("the state folder: %v; want none", err)
	}
}

func TestAnExaminationNamesWhoServesTheNetwork(t *testing.T) {
	c := examined(t)
	guard := func() string {
		t.Helper()
		all, err := c.Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Guard
	}
	if got := guard(); got != "" {
		t.Errorf("%q serves the network; want nobody", got)
	}
	held := newGuards(c.NodeName, "/state/one")
	t.Cleanup(held.release)
	if err := held.take("pods", 0); err != nil {
		t.Fatal(err)
	}
	if got := guard(); !HolderHas(got, "/state/one") || HolderHas(got, "/state/on") || HolderHas(got, "one") {
		t.Errorf("%q serves the network; want the one with its state folder", got)
	}
	if got := guard(); got == "" {
		t.Error("looking has taken the guard away")
	}
}

func TestOptionsWithWhichNoPluginCanBeRunAreAnError(t *testing.T) {
	c := examined(t)
	c.PluginEnv = []string{"CNI_PATH"}
	if _, err := c.Inspect(t.Context()); err == nil || !strings.Contains(err.Error(), "--plugin-env") {
		t.Errorf("got %v; want the option named", err)
	}
}
