package image

import (
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// archiveLimit is the limit of an archive in bytes. It has the compressed images of both
// architectures; the bridge's contain the Kubernetes client. A dependency that makes the linker keep
// every exported method of it, such as text/template, exceeds the limit.
const archiveLimit = 26_000_000

// programLimit is the limit of the daemon's program in bytes. A dependency that reaches
// reflect.Type.Methods or MethodByName exceeds it, because the linker must then keep every exported
// method ("go build -ldflags=-dumpdep" names the dependency).
const programLimit = 18 << 20

// cniLimit is the limit of the CNI plugin's program in bytes. It is started twice for each pod.
const cniLimit = 8 << 20

// criLimit is the limit of the program that reports sandboxes in bytes. Without the tag grpcnotrace it
// exceeds it.
const criLimit = 15 << 20

// programs returns the names of the images and of their programs, which are equal.
func programs() []string { return []string{"delegated-ipam", "delegated-ipam-bridge"} }

func TestImageContent(t *testing.T) {
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		for _, name := range programs() {
			t.Run(arch+" "+name, func(t *testing.T) {
				c := from(t, name, "--arch="+arch)
				if got := c.inspect(t).Architecture; got != arch {
					t.Errorf("the image is for %s; want %s", got, arch)
				}
				root := strings.TrimSpace(c.buildah(t, "mount", c.id))
				files := map[string]fs.FileInfo{}
				check.Must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
					if err == nil && !d.IsDir() {
						files[strings.TrimPrefix(path, root)], err = d.Info()
					}
					return err
				}))
				limits := map[string]int64{"/LICENSE": archiveLimit, "/usr/bin/" + name: archiveLimit * 2, "/licenses/" + name: archiveLimit}
				if name == "delegated-ipam" {
					limits["/usr/bin/delegated-ipam"], limits["/usr/bin/delegated-ipam-cni"], limits["/usr/bin/delegated-ipam-cri"] = programLimit, cniLimit, criLimit
					limits["/licenses/delegated-ipam-cni"], limits["/licenses/delegated-ipam-cri"] = archiveLimit, archiveLimit
				}
				if len(files) != len(limits) {
					t.Errorf("the image contains %v; want the files of %v", files, limits)
				}
				for file, limit := range limits {
					info := files[file]
					if info == nil {
						t.Fatalf("the image lacks %s: %v", file, files)
					}
					// The build may have a restrictive umask, and the images have an unprivileged user.
					mode := fs.FileMode(0o644)
					if strings.HasPrefix(file, "/usr/bin/") {
						mode = 0o755
						wantStatic(t, root+file, machine)
					}
					if info.Mode() != mode || info.Size() > limit {
						t.Errorf("%s has mode %o and %d bytes; want mode %o and at most %d bytes", file, info.Mode(), info.Size(), mode, limit)
					}
				}
			})
		}
	}
}

// wantStatic wants a static program for a machine: an image from scratch has no loader.
func wantStatic(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	f, err := elf.Open(path)
	check.Must(t, err)
	defer f.Close()
	if f.Machine != machine {
		t.Errorf("the program is for %v; want %v", f.Machine, machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a segment %v; want it static", p.Type)
		}
	}
}

func TestImageSize(t *testing.T) {
	for _, name := range programs() {
		info, err := os.Stat(archive(t, name))
		check.Must(t, err)
		t.Logf("%s: %d bytes", name, info.Size())
		if info.Size() >= archiveLimit {
			t.Errorf("the archive of %s has %d bytes; want less than %d", name, info.Size(), archiveLimit)
		}
	}
}

func TestImageMetadata(t *testing.T) {
	for name, command := range map[string][]string{"delegated-ipam": {"serve"}, "delegated-ipam-bridge": nil} {
		t.Run(name, func(t *testing.T) {
			c := from(t, name)
			config := c.inspect(t).Config
			if config.User != "60913:60913" {
				t.Errorf("the user is %q; want 60913:60913", config.User)
			}
			if !slices.Equal(config.Entrypoint, []string{name}) || !slices.Equal(config.Cmd, command) {
				t.Errorf("the command is %v %v", config.Entrypoint, config.Cmd)
			}
			if len(config.Volumes)+len(config.ExposedPorts) > 0 {
				t.Errorf("volumes %v, ports %v; want none", config.Volumes, config.ExposedPorts)
			}
			for _, label := range []string{"title", "description", "licenses", "source", "version", "revision"} {
				if value := config.Labels["org.opencontainers.image."+label]; value == "" || value == "unknown" {
					t.Errorf("the label %s is %q", label, value)
				}
			}
			version := config.Labels["org.opencontainers.image.version"]
			out := ""
			for i := 0; i < 4 && out == ""; i++ { // on a busy machine "buildah run" loses the output of a short command
				out = c.run(t, nil, name, "version")
			}
			if !strings.Contains(out, version) {
				t.Errorf("the program has version %s, and the label is %s", out, version)
			}
		})
	}
}

// No test of this package passes while buildah writes a directory of the machine such as /etc/cni.
func TestConfined(t *testing.T) {
	archive(t, "delegated-ipam") // skips without root
	dir, err := os.MkdirTemp("/etc", "delegated-ipam-")
	check.Must(t, err)
	defer os.RemoveAll(dir)
	if out, err := confined("touch", dir+"/file").CombinedOutput(); err == nil || !strings.Contains(string(out), "Read-only") {
		t.Errorf("writing to /etc: %v\n%s; want a read-only file system", err, out)
	}
	cmd := newStore(t).command("from", "--quiet", "scratch")
	cmd.Env = append(cmd.Env, "CONTAINERS_CONF=/dev/null")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "read-only") {
		t.Errorf("buildah with its own configuration: %v\n%s; want a read-only file system", err, out)
	}
}
