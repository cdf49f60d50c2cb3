package image

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// containerdConfig is the configuration of a containerd whose files are all in one directory.
const containerdConfig = `version = 2
root = "%[1]s/root"
state = "%[1]s/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "%[1]s/containerd.sock"
[ttrpc]
address = "%[1]s/ttrpc.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "%[1]s/opt"
`

// containerd starts a containerd that ends with the test, and returns a function that runs ctr.
func containerd(t *testing.T) (ctr func(args ...string) string) {
	t.Helper()
	if _, err := exec.LookPath("containerd"); err != nil {
		harness.Skipf(t, "%v", err)
	}
	dir, err := os.MkdirTemp("", "containerd") // the path of a socket is limited
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, os.RemoveAll(dir)) })
	config := filepath.Join(dir, "config.toml")
	check.Must(t, os.WriteFile(config, fmt.Appendf(nil, containerdConfig, dir), 0o600))
	var log bytes.Buffer
	server := exec.Command("containerd", "--config", config)
	server.Stdout, server.Stderr = &log, &log
	check.Must(t, server.Start())
	t.Cleanup(func() {
		check.Must(t, server.Process.Signal(unix.SIGTERM))
		if err := server.Wait(); err != nil || t.Failed() {
			t.Errorf("containerd ended: %v\n%s", err, &log)
		}
	})
	run := func(args ...string) (string, error) {
		out, err := exec.Command("ctr", append([]string{"--address", dir + "/containerd.sock", "--namespace", "k8s.io"}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("ctr %v: %w\n%s", args, err, out)
		}
		return string(out), err
	}
	harness.Eventually(t, "containerd", func() error { _, err := run("version"); return err })
	return func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		check.Must(t, err)
		return out
	}
}

// The command of docs/install/bridge.md finds the names in the manifests and those in a release's, by digest,
// and both architectures.
func TestImportIntoContainerd(t *testing.T) {
	var archives []string
	for _, name := range programs() {
		archives = append(archives, archive(t, name))
	}
	ctr := containerd(t)
	for _, file := range archives {
		ctr("images", "import", file)
	}
	got, want := map[string]string{}, map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(ctr("images", "ls")), "\n")[1:] {
		// The size is a number and its unit.
		fields := strings.Fields(line)
		if len(fields) < 6 {
			t.Fatalf("cannot read %q", line)
		}
		got[fields[0]] = fields[5]
		for _, name := range programs() {
			if repository := "ghcr.io/delegated-ipam/" + name; fields[0] == repository+":"+tag() {
				want[fields[0]], want[repository+"@"+fields[2]] = "linux/amd64,linux/arm64", "linux/amd64,linux/arm64"
			}
		}
	}
	if len(want) != 2*len(programs()) || !maps.Equal(got, want) {
		t.Errorf("the names and platforms are %q; want %q", got, want)
	}
	if out := ctr("images", "check"); strings.Count(out, "complete (2/2)") != len(want) {
		t.Errorf("the content is not complete:\n%s", out)
	}
}
