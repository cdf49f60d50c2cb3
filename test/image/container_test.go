// Package image runs the images that "make image" has built, with buildah and
// without a container runtime.
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
)

// envImages names the directory with the archives of the images.
const envImages = "DELEGATED_IPAM_TEST_IMAGES"

// working is a container of an image, made from its archive.
type working struct{ store, id string }

// archive returns the path of an image's archive. Where images cannot be run, the
// test is skipped; in CI that is an error.
func archive(t *testing.T, name string) string {
	t.Helper()
	missing := ""
	if os.Getenv(envImages) == "" {
		missing = "$" + envImages + " is empty; run make test-image"
	} else if _, err := exec.LookPath("buildah"); err != nil {
		missing = err.Error()
	} else if os.Geteuid() != 0 {
		missing = "images are run without user namespaces, so it takes root"
	}
	if missing != "" && os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	if missing != "" {
		t.Skip(missing)
	}
	return filepath.Join(os.Getenv(envImages), name+".tar")
}

// from makes a container of an image's archive.
func from(t *testing.T, name string) working {
	t.Helper()
	file := archive(t, name)
	c := store(t)
	c.id = strings.TrimSpace(c.buildah(t, "from", "--quiet", "docker-archive:"+file))
	return c
}

// store makes room for a container. What is written there goes away with the test.
// It is a file system of its own, as a container's is on a node.
func store(t *testing.T) working {
	t.Helper()
	c := working{store: t.TempDir()}
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

// command is a run of buildah.
func (c working) command(args ...string) *exec.Cmd {
	return exec.Command("../../deploy/image/buildah.sh", append([]string{c.store}, args...)...)
}

// buildah returns what it prints.
func (c working) buildah(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("buildah %v: %v\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.String()
}

// isolated are the arguments that run a command in the container. Options are
// buildah's, such as mounts.
func (c working) isolated(options []string, command ...string) []string {
	return slices.Concat([]string{"run", "--isolation", "chroot"}, options, []string{c.id, "--"}, command)
}

// run runs a command in the container to its end and returns what it prints.
func (c working) run(t *testing.T, options []string, command ...string) string {
	t.Helper()
	return c.buildah(t, c.isolated(options, command...)...)
}

// mount returns where the container's root directory is to be seen.
func (c working) mount(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.buildah(t, "mount", c.id))
}

// config is what an image says of itself (OCI image specification, config.md).
type config struct {
	User                  string
	Entrypoint, Cmd       []string
	Labels                map[string]string
	Volumes, ExposedPorts map[string]struct{}
}

func (c working) config(t *testing.T) config {
	t.Helper()
	var all struct{ OCIv1 struct{ Config config } }
	if err := json.Unmarshal([]byte(c.buildah(t, "inspect", c.id)), &all); err != nil {
		t.Fatal(err)
	}
	return all.OCIv1.Config
}

// gzipped is the length of a file as a registry would send it.
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

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
