// Package image tests the archives of "make image": containerd imports them, and buildah runs them.
package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// envImages names the directory with the archives of the images.
const envImages = "DELEGATED_IPAM_TEST_IMAGES"

// container is a container of an image.
type container struct{ store, id string }

// archive returns the path of an image's archive. Where images cannot run, the test is skipped.
func archive(t *testing.T, name string) string {
	t.Helper()
	_, err := exec.LookPath("buildah")
	switch {
	case os.Getenv(envImages) == "":
		harness.Skipf(t, "$%s is empty; run make test-image", envImages)
	case err != nil:
		harness.Skipf(t, "%v", err)
	case os.Geteuid() != 0:
		harness.Skipf(t, "images run without user namespaces, which needs root")
	}
	return filepath.Join(os.Getenv(envImages), name+".tar")
}

// tag returns the tag of the images, as the Makefile.
func tag() string { return cmp.Or(os.Getenv("IMAGE_TAG"), "local") }

// from creates a container from an image's archive, with options of "buildah from".
func from(t *testing.T, name string, options ...string) container {
	t.Helper()
	file := archive(t, name)
	c := newStore(t)
	c.id = strings.TrimSpace(c.buildah(t, slices.Concat([]string{"from", "--quiet"}, options, []string{"oci-archive:" + file + ":ghcr.io/delegated-ipam/" + name + ":" + tag()})...))
	return c
}

// newStore creates a store for a container: a file system that is removed with the test.
func newStore(t *testing.T) container {
	t.Helper()
	c := container{store: t.TempDir()}
	check.Must(t, unix.Mount("tmpfs", c.store, "tmpfs", 0, ""))
	t.Cleanup(func() {
		c.buildah(t, "rm", "--all")
		check.Must(t, unix.Unmount(c.store, unix.MNT_DETACH))
	})
	// buildah locks this directory even if it needs no network.
	config := "[network]\nnetwork_config_dir = \"" + c.store + "/net\"\n"
	check.Must(t, os.WriteFile(filepath.Join(c.store, "containers.conf"), []byte(config), 0o600))
	return c
}

// confine runs a command in a mount namespace where the root is read-only except the directory for
// temporary files. An archive is unpacked in /var/tmp, which is private.
const confine = `set -e
mount --rbind "$TMPDIR" "$TMPDIR"
mount -t tmpfs tmpfs /var/tmp
mount -o remount,bind,ro /
exec "$@"`

// confined returns a command that runs so.
func confined(command ...string) *exec.Cmd {
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-c", confine, "sh"}, command...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+os.TempDir())
	return cmd
}

// command returns a command of buildah, which writes only to the store, and needs no file system
// driver that a container or an old kernel may lack.
func (c container) command(args ...string) *exec.Cmd {
	cmd := confined(append([]string{"buildah", "--root", c.store + "/storage", "--runroot", c.store + "/run", "--storage-driver", "vfs"}, args...)...)
	cmd.Env = append(cmd.Env, "CONTAINERS_CONF="+c.store+"/containers.conf")
	return cmd
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

// inspected is an image's configuration (OCI image specification, config.md).
type inspected struct {
	Architecture string
	Config       struct {
		User                  string
		Entrypoint, Cmd       []string
		Labels                map[string]string
		Volumes, ExposedPorts map[string]struct{}
	}
}

func (c container) inspect(t *testing.T) inspected {
	t.Helper()
	var all struct{ OCIv1 inspected }
	check.Must(t, json.Unmarshal([]byte(c.buildah(t, "inspect", c.id)), &all))
	return all.OCIv1
}
