package options

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// resolve returns the options of the daemon from flags, environment and a directory with these
// files; nil for no directory.
func resolve(t *testing.T, env, files map[string]string, args ...string) (*Daemon, *Set, error) {
	t.Helper()
	s, set := NewDaemon(env)
	if files != nil {
		args = append(args, "--config-dir="+writeDir(t, files))
	}
	check.Must(t, set.Flags().Parse(args))
	return s, set, set.Resolve(env)
}

// writeDir returns a directory with these files.
func writeDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

func TestPrecedence(t *testing.T) {
	const flagValue, envValue, fileValue = "1m", "2m", "3m"
	for name, tt := range map[string]struct {
		flag, env, file bool
		want            time.Duration
		from            Source
	}{
		"default":                        {want: 0, from: FromDefault},
		"file":                           {file: true, want: 3 * time.Minute, from: FromConfigDir},
		"environment":                    {env: true, want: 2 * time.Minute, from: FromEnvironment},
		"environment over file":          {env: true, file: true, want: 2 * time.Minute, from: FromEnvironment},
		"flag":                           {flag: true, want: time.Minute, from: FromFlag},
		"flag over file":                 {flag: true, file: true, want: time.Minute, from: FromFlag},
		"flag over environment":          {flag: true, env: true, want: time.Minute, from: FromFlag},
		"flag over environment and file": {flag: true, env: true, file: true, want: time.Minute, from: FromFlag},
	} {
		t.Run(name, func(t *testing.T) {
			files, env, args := map[string]string{}, map[string]string{}, []string{}
			if tt.file {
				files["release-delay"] = fileValue + "\n"
			}
			if tt.env {
				env["DELEGATED_IPAM_RELEASE_DELAY"] = envValue
			}
			if tt.flag {
				args = append(args, "--release-delay="+flagValue)
			}
			s, set, err := resolve(t, env, files, args...)
			if from := set.Setting("release-delay").Source; err != nil || s.ReleaseDelay != tt.want || from != tt.from {
				t.Errorf("got %s from %s, %v; want %s from %s", s.ReleaseDelay, from, err, tt.want, tt.from)
			}
			if from := set.Setting("owners").Source; from != FromDefault {
				t.Errorf("--owners is from %s; want %s", from, FromDefault)
			}
		})
	}
}

func TestListReplaced(t *testing.T) {
	dir := writeDir(t, map[string]string{"owners": "a,b", "pool": "blue=blue-net\nred=red-net\n", "cni-bin-dir": "/x, /y"})
	s, _, err := resolve(t, map[string]string{"DELEGATED_IPAM_OWNERS": "c,d", "DELEGATED_IPAM_CONFIG_DIR": dir}, nil, "--cni-bin-dir=/z")
	check.Must(t, err)
	check.Equal(t, "owners", s.Owners, []string{"c", "d"})
	check.Equal(t, "CNI binary directories", s.CNIBinDirs, []string{"/z"})
	check.Equal(t, "pools", s.Pools, map[string]string{"blue": "blue-net", "red": "red-net"})
}

func TestSettings(t *testing.T) {
	files := map[string]string{"owners": "a, b", "release-delay": "3m"}
	_, set, err := resolve(t, map[string]string{"DELEGATED_IPAM_RELEASE_DELAY": "2m", "DELEGATED_IPAM_PLUGIN_ENV": "NO_PROXY"}, files,
		"--plugin-env=HTTP_PROXY", "--pool=blue=blue-net", "--node-name=n")
	check.Must(t, err)
	all := set.Settings()
	for _, want := range []Setting{
		{Name: "owners", Value: "a,b", Source: FromConfigDir},
		{Name: "release-delay", Value: "2m0s", Source: FromEnvironment},
		{Name: "plugin-env", Value: "HTTP_PROXY", Source: FromFlag},
		{Name: "pool", Value: "blue=blue-net", Source: FromFlag},
		{Name: "verify-interval", Value: "10s", Source: FromDefault},
	} {
		if !slices.Contains(all, want) {
			t.Errorf("settings are %v; want %v among them", all, want)
		}
	}
	if !slices.IsSortedFunc(all, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("settings are not sorted: %v", all)
	}
}

func TestConfigDirSetting(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		env  map[string]string
		args []string
		want Setting
	}{
		"not set":               {want: Setting{Name: "config-dir", Source: FromDefault}},
		"environment":           {env: map[string]string{"DELEGATED_IPAM_CONFIG_DIR": dir}, want: Setting{Name: "config-dir", Value: dir, Source: FromEnvironment}},
		"flag over environment": {env: map[string]string{"DELEGATED_IPAM_CONFIG_DIR": "/nowhere"}, args: []string{"--config-dir=" + dir}, want: Setting{Name: "config-dir", Value: dir, Source: FromFlag}},
	} {
		t.Run(name, func(t *testing.T) {
			_, set, err := resolve(t, tt.env, nil, tt.args...)
			if got := set.Setting("config-dir"); err != nil || got != tt.want {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestEmptyVariableAndFile(t *testing.T) {
	s, _, err := resolve(t, map[string]string{"DELEGATED_IPAM_RELEASE_DELAY": ""}, map[string]string{"owners": "", "local-router-ipv4": "\n"})
	if err != nil || len(s.Owners) != 0 || s.LocalRouterIPv4.IsValid() || s.ReleaseDelay != 0 {
		t.Errorf("got owners %q, router %s, release delay %s, %v; want none of them", s.Owners, s.LocalRouterIPv4, s.ReleaseDelay, err)
	}
}

func TestBadSources(t *testing.T) {
	for name, tt := range map[string]struct {
		env   map[string]string
		files map[string]string
		words []string
	}{
		"environment":             {env: map[string]string{"DELEGATED_IPAM_ENABLE_IPV6": "perhaps"}, words: []string{"DELEGATED_IPAM_ENABLE_IPV6", `"perhaps"`, "true or false"}},
		"file":                    {files: map[string]string{"release-delay": "soon"}, words: []string{"/release-delay", `"soon"`, "a duration"}},
		"two files":               {files: map[string]string{"release-delay": "soon", "socket-mode": "rw"}, words: []string{"/release-delay", "/socket-mode"}},
		"files that are unknown":  {files: map[string]string{"colour": "red", "size": "1"}, words: []string{"/colour", "/size", "not an option of serve"}},
		"file config-dir":         {files: map[string]string{"config-dir": "/x"}, words: []string{"/config-dir", "not an option of serve"}},
		"environment and unknown": {env: map[string]string{"DELEGATED_IPAM_RELEASE_DELAY": "soon"}, files: map[string]string{"colour": "red"}, words: []string{"DELEGATED_IPAM_RELEASE_DELAY", "/colour"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := resolve(t, tt.env, tt.files)
			wantWords(t, err, tt.words...)
		})
	}
}

func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range words {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	env := map[string]string{"DELEGATED_IPAM_SERVICE_HOST": "10.0.0.1", "OTHER": "x", "DELEGATED_IPAM_OWNERS": "router", "DELEGATED_IPAM_CONFIG_DIR": "", "DELEGATED_IPAM_HOST": "x"}
	_, daemon := NewDaemon(nil)
	check.Equal(t, "unknown variables", daemon.UnknownVariables(env), []string{"DELEGATED_IPAM_HOST", "DELEGATED_IPAM_SERVICE_HOST"})
}

func TestEnvironment(t *testing.T) {
	got := Environment([]string{"=weird", "A=first", "A=last=1", "novalue"})
	check.Equal(t, "environment", got, map[string]string{"": "weird", "A": "last=1"})
}

func TestBefore(t *testing.T) {
	order := []Source{FromFlag, FromEnvironment, FromConfigDir, FromDefault}
	for i, a := range order {
		for j, b := range order {
			if got := a.Before(b); got != (i <= j) {
				t.Errorf("%s before %s is %t", a, b, got)
			}
		}
	}
}

func TestBadDefaultPanics(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "--size") {
			t.Errorf("panicked with %q; want the name of the option", text)
		}
	}()
	var n int
	Register(pflag.NewFlagSet("x", pflag.ContinueOnError), Option{Name: "size", Value: Count(&n), Default: "large"})
}

// The layout is from Kubernetes (pkg/volume/util, AtomicWriter): the files are links into
// ..data, which is a link to the version in use.
func TestConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := filepath.Join(dir, "..2026_03_01_12_00_00.1")
	check.Must(t, errors.Join(
		os.Mkdir(version, 0o755),
		os.WriteFile(filepath.Join(version, "owners"), []byte("router\n"), 0o644),
		os.Symlink(filepath.Base(version), filepath.Join(dir, "..data")),
		os.Symlink(filepath.Join("..data", "owners"), filepath.Join(dir, "owners")),
		os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o644),
	))
	s, _, err := resolve(t, nil, nil, "--config-dir="+dir)
	if want := []string{"router"}; err != nil || !slices.Equal(s.Owners, want) {
		t.Errorf("owners are %q, %v; want %q", s.Owners, err, want)
	}
}

func TestUnreadableConfigDir(t *testing.T) {
	_, set, err := resolve(t, nil, nil, "--config-dir="+filepath.Join(t.TempDir(), "none"))
	wantWords(t, err, "--config-dir", "none", "expected a readable directory")
	if from := set.Setting("owners").Source; from != "" {
		t.Errorf("--owners is from %q; want no source after an error", from)
	}
}

func TestUnreadableConfigFile(t *testing.T) {
	for name, tt := range map[string]struct {
		create func(path string) error
		want   string
	}{
		"directory":    {func(path string) error { return os.Mkdir(path, 0o755) }, "not a regular file"},
		"FIFO":         {func(path string) error { return unix.Mkfifo(path, 0o600) }, "not a regular file"},
		"too large":    {func(path string) error { return os.WriteFile(path, make([]byte, 64<<10+1), 0o600) }, "larger than 65536 bytes"},
		"sparse 5 GiB": {func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 5<<30)) }, "larger than 65536 bytes"},
		"dangling":     {func(path string) error { return os.Symlink("nowhere", path) }, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "owners")
			check.Must(t, tt.create(path))
			_, _, err := resolve(t, nil, nil, "--config-dir="+filepath.Dir(path))
			wantWords(t, err, path, tt.want)
		})
	}
}

func TestLargestConfigFile(t *testing.T) {
	value := strings.Repeat("x", 64<<10)
	s, _, err := resolve(t, nil, map[string]string{"owners": value})
	if err != nil || !slices.Equal(s.Owners, []string{value}) {
		t.Errorf("got %d owners, %v; want the one of the file", len(s.Owners), err)
	}
}

func TestSkippedConfigFiles(t *testing.T) {
	files := map[string]string{"owners": "router", ".hidden": "x"}
	var want []string
	for _, name := range []string{"owners~", "owners.bak", "owners.orig", ".owners.swp", ".owners.swo", "#owners#", ".#owners", "owners.tmp", "owners.rpmsave", "owners.dpkg-old"} {
		files[name] = "all"
		want = append(want, name)
	}
	dir := writeDir(t, files)
	want = append(want, "lost+found", "more")
	check.Must(t, errors.Join(
		os.Mkdir(filepath.Join(dir, "lost+found"), 0o755),
		os.Symlink("lost+found", filepath.Join(dir, "more")),
		os.Mkdir(filepath.Join(dir, "..2026_03_01_12_00_00.1"), 0o755),
		os.Symlink("..2026_03_01_12_00_00.1", filepath.Join(dir, "..data")),
	))
	s, set, err := resolve(t, nil, nil, "--config-dir="+dir)
	if err != nil || !slices.Equal(s.Owners, []string{"router"}) {
		t.Errorf("owners are %q, %v; want those of the file", s.Owners, err)
	}
	for i := range want {
		want[i] = filepath.Join(dir, want[i])
	}
	slices.Sort(want)
	check.Equal(t, "skipped files", set.SkippedFiles(), want)
}
