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

// Bytes. The sidecar is a small thing beside each agent; with the bridge comes the
// Kubernetes client, so that image is measured as a registry sends it.
const limit = 20_000_000

// The sidecar's program stays below this. What makes it grow at a stroke is a
// dependency that keeps the linker from leaving out methods nobody calls: whatever
// reaches reflect.Type.Methods or MethodByName ("go build -ldflags=-dumpdep" names it).
const programLimit = 18 << 20

func TestAnImageHoldsOneStaticProgramAndItsLicence(t *testing.T) {
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
				t.Errorf("it holds %v, want %v", files, want)
			}
			info, err := os.Stat(root + program)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != 0o755 {
				t.Errorf("%s: mode %v, want 0755", program, info.Mode())
			}
			static(t, root+program)
			if name == "delegated-ipam" && info.Size() > programLimit {
				t.Errorf("%s has %d bytes, want at most %d", program, info.Size(), programLimit)
			}
		})
	}
}

// Who builds may have a umask that leaves nothing to others, and the images' user is nobody.
func TestEverybodyMayRunAnImageWhateverTheUmaskOfItsBuild(t *testing.T) {
	for _, name := range []string{"delegated-ipam", "delegated-ipam-bridge"} {
		t.Run(name, func(t *testing.T) {
			archive(t, name) // or there is no buildah
			repository := t.TempDir()
			if err := os.Mkdir(filepath.Join(repository, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{"LICENSE", "bin/" + name} {
				if err := os.WriteFile(filepath.Join(repository, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := store(t)
			id := c.buildah(t, "build", "--isolation", "chroot", "--quiet", "--target", name, "--file", "../../deploy/image/Dockerfile", repository)
			c.id = strings.TrimSpace(c.buildah(t, "from", "--quiet", strings.TrimSpace(id)))
			for file, want := range map[string]fs.FileMode{"/LICENSE": 0o644, "/usr/bin/" + name: 0o755} {
				if info, err := os.Stat(c.mount(t) + file); err != nil || info.Mode() != want {
					t.Errorf("%s: mode %v, %v; want %v", file, info.Mode(), err, want)
				}
			}
		})
	}
}

// static wants a program that needs no loader and no library: an image from
// scratch has neither.
func static(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a segment %v: it is not static", p.Type)
		}
	}
}

func TestAnImageIsSmall(t *testing.T) {
	sidecar, err := os.Stat(archive(t, "delegated-ipam"))
	if err != nil {
		t.Fatal(err)
	}
	compressed := gzipped(t, archive(t, "delegated-ipam-bridge"))
	t.Logf("delegated-ipam: %d bytes as it lies on the node; delegated-ipam-bridge: %d bytes as it is sent", sidecar.Size(), compressed)
	if sidecar.Size() >= limit {
		t.Errorf("delegated-ipam has %d bytes, want less than %d", sidecar.Size(), limit)
	}
	if compressed >= limit {
		t.Errorf("delegated-ipam-bridge has %d bytes, want less than %d", compressed, limit)
	}
}

func TestAnImageSaysWhatItIs(t *testing.T) {
	for name, command := range map[string][]string{"delegated-ipam": {"serve"}, "delegated-ipam-bridge": nil} {
		t.Run(name, func(t *testing.T) {
			c := from(t, name)
			config := c.config(t)
			if config.User != "65532:65532" {
				t.Errorf("its user is %q, want nobody unless a manifest says otherwise", config.User)
			}
			if !slices.Equal(config.Entrypoint, []string{name}) || !slices.Equal(config.Cmd, command) {
				t.Errorf("it runs %v %v", config.Entrypoint, config.Cmd)
			}
			if len(config.Volumes)+len(config.ExposedPorts) > 0 {
				t.Errorf("volumes %v, ports %v; want none", config.Volumes, config.ExposedPorts)
			}
			for _, label := range []string{"title", "description", "licenses", "source", "version", "revision"} {
				if value := config.Labels["org.opencontainers.image."+label]; value == "" || value == "unknown" {
					t.Errorf("its %s is %q", label, value)
				}
			}
			version := config.Labels["org.opencontainers.image.version"]
			argument := map[string]string{"delegated-ipam": "version", "delegated-ipam-bridge": "--version"}[name]
			if out := c.run(t, nil, name, argument); !strings.Contains(out, version) {
				t.Errorf("it says that it is %s, and its label %s", out, version)
			}
		})
	}
}
