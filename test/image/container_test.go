// Package image tests the images of "make image" with buildah, without a container runtime.
package image

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// envImages names the directory with the archives of the images.
const envImages = "DELEGATED_IPAM_TEST_IMAGES"

// container is a container of an image.
type container struct{ store, id string }

// archive returns the path of an image's archive. Where images cannot run, the test is skipped.
func archive(t *testing.T, name string) string {
	t.Helper()
	missing := ""
	if os.Getenv(envImages) == "" {
		missing = "$" + envImages + " is empty; run make test-image"
	} else if _, err := exec.LookPath("buildah"); err != nil {
		missing = err.Error()
	} else if os.Geteuid() != 0 {
		missing = "images run without user namespaces, which needs root"
	}
	if missing != "" {
		harness.Skipf(t, "%s", missing)
	}
	return filepath.Join(os.Getenv(envImages), name+".tar")
}

// from creates a container from an image's archive.
func from(t *testing.T, name string) container {
	t.Helper()
	file := archive(t, name)
	c := newStore(t)
	c.id = strings.TrimSpace(c.buildah(t, "from", "--quiet", "docker-archive:"+file))
	return c
}

// newStore creates a store for a container: a separate file system, as on a node, which is removed
// with the test.
func newStore(t *testing.T) container {
	t.Helper()
	c := container{store: t.TempDir()}
	if err := unix.Mount("tmpfs", c.store, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.buildah(t, "rm", "--all")
		if err := unix.Unmount(c.store, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return c
}

// command returns a command of buildah.
func (c container) command(args ...string) *exec.Cmd {
	return exec.Command("../../deploy/image/buildah.sh", append([]string{c.store}, args...)...)
}

// buildah runs buildah and returns its output.
func (c container) buildah(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("buildah %v: %v\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.String()
}

// isolated returns buildah's arguments that run a command in the container, with options such as
// mounts.
func (c container) isolated(options []string, command ...string) []string {
	return slices.Concat([]string{"run", "--isolation", "chroot"}, options, []string{c.id, "--"}, command)
}

// run runs a command in the container and returns its output.
func (c container) run(t *testing.T, options []string, command ...string) string {
	t.Helper()
	return c.buildah(t, c.isolated(options, command...)...)
}

// mount returns the path at which the container's root is mounted.
func (c container) mount(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.buildah(t, "mount", c.id))
}

// config is the configuration of an image (OCI image specification, config.md).
type config struct {
	User                  string
	Entrypoint, Cmd       []string
	Labels                map[string]string
	Volumes, ExposedPorts map[string]struct{}
}

func (c container) config(t *testing.T) config {
	t.Helper()
	var all struct{ OCIv1 struct{ Config config } }
	if err := json.Unmarshal([]byte(c.buildah(t, "inspect", c.id)), &all); err != nil {
		t.Fatal(err)
	}
	return all.OCIv1.Config
}

// gzipped returns the compressed size of a file, as in a registry.
func gzipped(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var length counter
	z := gzip.NewWriter(&length)
	if _, err := io.Copy(z, f); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return int64(length)
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
