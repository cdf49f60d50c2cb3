package image

import (
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// imageLimit is the limit of an image in bytes: of the sidecar's archive, and of the bridge's
// compressed archive, because that image contains the Kubernetes client.
const imageLimit = 20_000_000

// programLimit is the limit of the sidecar's program in bytes. A dependency that reaches
// reflect.Type.Methods or MethodByName exceeds it, because the linker must then keep every exported
// method ("go build -ldflags=-dumpdep" names the dependency).
const programLimit = 18 << 20

func TestImageContent(t *testing.T) {
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
		t.Run(name, func(t *testing.T) {
			root := from(t, name).mount(t)
			var files []string
			err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					files = append(files, strings.TrimPrefix(path, root))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			program := "/usr/bin/" + name
			if want := []string{"/LICENSE", program}; !slices.Equal(files, want) {
				t.Errorf("the image contains %v; want %v", files, want)
			}
			info, err := os.Stat(root + program)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o755 {
				t.Errorf("%s has mode %v; want 0755", program, info.Mode())
			}
			wantStatic(t, root+program)
			if name == "delegated-ipam" && info.Size() > programLimit {
				t.Errorf("%s has %d bytes; want at most %d", program, info.Size(), programLimit)
			}
		})
	}
}

// The build may have a restrictive umask, and the images have an unprivileged user.
func TestImageFileModes(t *testing.T) {
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
		t.Run(name, func(t *testing.T) {
			archive(t, name) // skips without buildah
			repository := t.TempDir()
			if err := os.Mkdir(filepath.Join(repository, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"LICENSE", "bin/" + name} {
				if err := os.WriteFile(filepath.Join(repository, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := newStore(t)
			id := c.buildah(t, "build", "--isolation", "chroot", "--quiet", "--target", name, "--file", "../../deploy/image/Dockerfile", repository)
			c.id = strings.TrimSpace(c.buildah(t, "from", "--quiet", strings.TrimSpace(id)))
			for file, want := range map[string]fs.FileMode{"/LICENSE": 0o644, "/usr/bin/" + name: 0o755} {
				if info, err := os.Stat(c.mount(t) + file); err != nil || info.Mode() != want {
					t.Errorf("%s has mode %v, %v; want %v", file, info.Mode(), err, want)
				}
			}
		})
	}
}

// wantStatic wants a static program, because an image from scratch has no loader and no libraries.
func wantStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a segment %v; want it static", p.Type)
		}
	}
}

func TestImageSize(t *testing.T) {
	sidecar, err := os.Stat(archive(t, "delegated-ipam"))
	if err != nil {
		t.Fatal(err)
	}
	compressed := gzipped(t, archive(t, "delegated-ipam-bridge"))
	t.Logf("delegated-ipam: %d bytes; delegated-ipam-bridge: %d bytes compressed", sidecar.Size(), compressed)
	if sidecar.Size() >= imageLimit {
		t.Errorf("delegated-ipam has %d bytes; want less than %d", sidecar.Size(), imageLimit)
	}
	if compressed >= imageLimit {
		t.Errorf("delegated-ipam-bridge has %d bytes compressed; want less than %d", compressed, imageLimit)
	}
}

func TestImageMetadata(t *testing.T) {
	for name, command := range map[string][]string{"delegated-ipam": {"serve"}, "delegated-ipam-bridge": nil} {
		t.Run(name, func(t *testing.T) {
			c := from(t, name)
			config := c.config(t)
			if config.User != "65532:65532" {
				t.Errorf("the user is %q; want 65532:65532", config.User)
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
			argument := map[string]string{"delegated-ipam": "version", "delegated-ipam-bridge": "--version"}[name]
			if out := c.run(t, nil, name, argument); !strings.Contains(out, version) {
				t.Errorf("the program has version %s, and the label is %s", out, version)
			}
		})
	}
}
