package cli

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// served runs `serve` with a daemon that ends at once, and returns what the
// daemon was told.
func served(t *testing.T, env map[string]string, args ...string) (app.Config, outcome) {
	t.Helper()
	p, got, calls := testProgram(env), app.Config{}, 0
	p.serve = func(_ context.Context, c app.Config, _ logrus.FieldLogger) error {
		got, calls = c, calls+1
		return nil
	}
	o := p.runHere(t, append([]string{"serve"}, args...)...)
	if (calls == 1) != (o.code == option.Done) {
		t.Errorf("the daemon was started %d times and the status is %d; want it started only if that is 0; stderr: %s", calls, o.code, o.stderr)
	}
	return got, o
}

// writeFolder makes a folder with these files.
func writeFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWithoutOptionsTheDefaultsAreServed(t *testing.T) {
	got, o := served(t, map[string]string{"K8S_NODE_NAME": "worker-1"})
	o.wants(t, option.Done, "")
	if got.MaxPluginProcesses < 4 {
		t.Errorf("at most %d plugin processes; want 4 or more", got.MaxPluginProcesses)
	}
	want := app.Config{
		Version:       "v1.2.3",
		SocketPath:    "/var/run/cilium/delegated-ipam.sock",
		SocketMode:    0o660,
		StateDir:      "/var/lib/delegated-ipam",
		CNIConfDir:    "/etc/cni/net.d",
		CNIBinDirs:    []string{"/opt/cni/bin"},
		Pools:         map[string]string{"default": ""},
		NodeName:      "worker-1",
		EnableIPv4:    true,
		EnableIPv6:    true,
		Owners:        []string{"*"},
		PluginTimeout: 30 * time.Second,
		// It depends on the machine.
		MaxPluginProcesses: got.MaxPluginProcesses,
		MaxQueuedRequests:  1024,
		VerifyInterval:     10 * time.Second,
		CNIIfName:          "eth0",
		IPAMExpiration:     10 * time.Minute,
	}
	if got.Options = nil; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// profileFile makes a file that --plugin-profile takes.
func profileFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../delegate/profile/profiles/host-local.json")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(writeFolder(t, map[string]string{"p.json": string(text)}), "p.json")
}

func TestEveryOptionReachesTheDaemon(t *testing.T) {
	profile := profileFile(t)
	got, o := served(t, nil,
		"--socket-path=/s/x.sock", "--socket-mode=0600", "--socket-group=root", "--allow-uids=1,2", "--allow-uids=3", "--allow-gids=4",
		"--state-dir=/s/state", "--cni-conf-dir=/s/conf", "--cni-conf-file=/s/conf/a.conflist", "--cni-bin-dir=/s/a,/s/b",
		"--cni-network=pods", "--pool=blue=blue-net", "--pool=red=red-net,green=green-net", "--node-name=n",
		"--enable-ipv4=false", "--enable-ipv6", "--local-router-ipv4=10.0.0.1", "--local-router-ipv6=fd00::1",
		"--ipv4-range=10.0.0.0/24", "--ipv6-range=fd00::/64", "--owners=router,kube-system/*", "--owners=health", "--retire-owners",
		"--plugin-profile="+profile, "--plugin-timeout=5s", "--plugin-env=HTTP_PROXY,NO_PROXY", "--max-plugin-processes=7",
		"--max-queued-requests=8", "--verify-interval=0s", "--cni-netns=ephemeral", "--cni-ifname=net0", "--release-delay=1m",
		"--ipam-expiration=2m", "--metrics-address=:9967", "--log-level=error", "--log-format=json")
	o.wants(t, option.Done, "")
	want := app.Config{
		Version: "v1.2.3", SocketPath: "/s/x.sock", SocketMode: 0o600, SocketGroup: "root", AllowUIDs: []int{1, 2, 3}, AllowGIDs: []int{4},
		StateDir: "/s/state", CNIConfDir: "/s/conf", CNIConfFile: "/s/conf/a.conflist", CNIBinDirs: []string{"/s/a", "/s/b"},
		Pools:    map[string]string{"default": "pods", "blue": "blue-net", "red": "red-net", "green": "green-net"},
		NodeName: "n", EnableIPv6: true,
		LocalRouterIPv4: netip.MustParseAddr("10.0.0.1"), LocalRouterIPv6: netip.MustParseAddr("fd00::1"),
		IPv4Range: netip.MustParsePrefix("10.0.0.0/24"), IPv6Range: netip.MustParsePrefix("fd00::/64"),
		Owners: []string{"router", "kube-system/*", "health"}, RetireOwners: true,
		PluginProfiles: []string{profile}, PluginTimeout: 5 * time.Second, PluginEnv: []string{"HTTP_PROXY", "NO_PROXY"},
		MaxPluginProcesses: 7, MaxQueuedRequests: 8, CNINetNS: "ephemeral", CNIIfName: "net0",
		ReleaseDelay: time.Minute, IPAMExpiration: 2 * time.Minute, MetricsAddress: ":9967",
	}
	if got.Options = nil; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestTheBestSourceOfAnOptionCounts(t *testing.T) {
	const flagValue, envValue, folderValue = "1m", "2m", "3m"
	tests := map[string]struct {
		flag, env, folder bool
		want              time.Duration
		from              source
	}{
		"nothing gives the default":                 {want: 0, from: fromDefault},
		"a file in the folder wins over none":       {folder: true, want: 3 * time.Minute, from: fromConfigDir},
		"the environment wins over none":            {env: true, want: 2 * time.Minute, from: fromEnvironment},
		"the environment wins over the folder":      {env: true, folder: true, want: 2 * time.Minute, from: fromEnvironment},
		"a flag wins over none":                     {flag: true, want: time.Minute, from: fromFlag},
		"a flag wins over the folder":               {flag: true, folder: true, want: time.Minute, from: fromFlag},
		"a flag wins over the environment":          {flag: true, env: true, want: time.Minute, from: fromFlag},
		"a flag wins over environment and a folder": {flag: true, env: true, folder: true, want: time.Minute, from: fromFlag},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			files, env, args := map[string]string{}, map[string]string{}, []string{}
			if tt.folder {
				files["release-delay"] = folderValue + "\n"
			}
			if tt.env {
				env["DELEGATED_IPAM_RELEASE_DELAY"] = envValue
			}
			if tt.flag {
				args = append(args, "--release-delay="+flagValue)
			}
			o := defaultServeOptions("n")
			options := pflag.NewFlagSet("serve", pflag.ContinueOnError)
			o.register(options)
			if err := options.Parse(args); err != nil {
				t.Fatal(err)
			}
			from, err := fill(options, env, writeFolder(t, files))
			if err != nil || o.ReleaseDelay != tt.want || from["release-delay"] != tt.from {
				t.Errorf("got %s from %s, %v; want %s from %s", o.ReleaseDelay, from["release-delay"], err, tt.want, tt.from)
			}
			if from["owners"] != fromDefault {
				t.Errorf("--owners, of which nothing was said, is from %s; want %s", from["owners"], fromDefault)
			}
		})
	}
}

func TestAListOfABetterSourceReplacesTheOthers(t *testing.T) {
	dir := writeFolder(t, map[string]string{"owners": "a,b", "pool": "blue=blue-net\nred=red-net\n", "cni-bin-dir": "/x, /y"})
	env := map[string]string{"DELEGATED_IPAM_OWNERS": "c,d", "DELEGATED_IPAM_CONFIG_DIR": dir}
	got, o := served(t, env, "--cni-bin-dir=/z")
	o.wants(t, option.Done, "")
	if want := []string{"c", "d"}; !slices.Equal(got.Owners, want) {
		t.Errorf("owners are %q; want %q, from the environment", got.Owners, want)
	}
	if want := []string{"/z"}; !slices.Equal(got.CNIBinDirs, want) {
		t.Errorf("plugin folders are %q; want %q, from the flag", got.CNIBinDirs, want)
	}
	if want := map[string]string{"default": "", "blue": "blue-net", "red": "red-net"}; !maps.Equal(got.Pools, want) {
		t.Errorf("pools are %q; want %q, one for each line of the file", got.Pools, want)
	}
}

func TestTheDaemonIsToldEachValueAndWhereItCameFrom(t *testing.T) {
	dir := writeFolder(t, map[string]string{"owners": "a, b", "release-delay": "3m"})
	got, _ := served(t, map[string]string{"DELEGATED_IPAM_RELEASE_DELAY": "2m", "DELEGATED_IPAM_PLUGIN_ENV": "NO_PROXY"},
		"--config-dir="+dir, "--plugin-env=HTTP_PROXY", "--pool=blue=blue-net", "--node-name=n")
	for _, want := range []app.Option{
		{Name: "owners", Value: "a,b", Source: "config-dir"},
		{Name: "release-delay", Value: "2m0s", Source: "environment"},
		{Name: "plugin-env", Value: "HTTP_PROXY", Source: "flag"},
		{Name: "pool", Value: "blue=blue-net", Source: "flag"},
		{Name: "verify-interval", Value: "10s", Source: "default"},
	} {
		if !slices.Contains(got.Options, want) {
			t.Errorf("the daemon is told %v; want %v among them", got.Options, want)
		}
	}
	if !slices.IsSortedFunc(got.Options, func(a, b app.Option) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("the options are not in order: %v", got.Options)
	}
}

func TestTheDaemonIsToldWhichFolderItsOptionsCameFrom(t *testing.T) {
	dir := writeFolder(t, nil)
	variable := map[string]string{"DELEGATED_IPAM_CONFIG_DIR": dir}
	for name, tt := range map[string]struct {
		env  map[string]string
		args []string
		want app.Option
	}{
		"by no means":         {want: app.Option{Name: "config-dir", Source: "default"}},
		"by the environment":  {env: variable, want: app.Option{Name: "config-dir", Value: dir, Source: "environment"}},
		"by a flag over that": {env: map[string]string{"DELEGATED_IPAM_CONFIG_DIR": "/nowhere"}, args: []string{"--config-dir=" + dir}, want: app.Option{Name: "config-dir", Value: dir, Source: "flag"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, o := served(t, tt.env, tt.args...)
			o.wants(t, option.Done, "")
			if !slices.Contains(got.Options, tt.want) {
				t.Errorf("the daemon is told %v; want %v among them", got.Options, tt.want)
			}
		})
	}
}

func TestAnEmptyVariableIsNotSetAndAnEmptyFileIsAnEmptyValue(t *testing.T) {
	dir := writeFolder(t, map[string]string{"owners": "", "local-router-ipv4": "\n"})
	got, o := served(t, map[string]string{"DELEGATED_IPAM_RELEASE_DELAY": ""}, "--config-dir="+dir)
	o.wants(t, option.Done, "")
	if len(got.Owners) != 0 || got.LocalRouterIPv4.IsValid() || got.ReleaseDelay != 0 {
		t.Errorf("got owners %q, router %s, release delay %s; want none of them", got.Owners, got.LocalRouterIPv4, got.ReleaseDelay)
	}
}

// The layout is Kubernetes' (pkg/volume/util, AtomicWriter): the files are links
// into ..data, which leads to the version in use.
func TestAMountedConfigMapIsRead(t *testing.T) {
	dir := t.TempDir()
	version := filepath.Join(dir, "..2026_03_01_12_00_00.1")
	for _, err := range []error{
		os.Mkdir(version, 0o755),
		os.WriteFile(filepath.Join(version, "owners"), []byte("router\n"), 0o644),
		os.Symlink(filepath.Base(version), filepath.Join(dir, "..data")),
		os.Symlink(filepath.Join("..data", "owners"), filepath.Join(dir, "owners")),
		os.WriteFile(filepath.Join(dir, ".hidden"), nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, o := served(t, nil, "--config-dir="+dir)
	o.wants(t, option.Done, "")
	if want := []string{"router"}; !slices.Equal(got.Owners, want) {
		t.Errorf("owners are %q; want %q", got.Owners, want)
	}
}

func TestWhatIsWrongInTheEnvironmentOrTheFolderIsRefusedByItsName(t *testing.T) {
	tests := map[string]struct {
		env   map[string]string
		files map[string]string
		says  []string
	}{
		"a value in the environment":  {env: map[string]string{"DELEGATED_IPAM_ENABLE_IPV6": "perhaps"}, says: []string{"DELEGATED_IPAM_ENABLE_IPV6", `"perhaps"`, "true or false"}},
		"a value in the folder":       {files: map[string]string{"release-delay": "soon"}, says: []string{"/release-delay", `"soon"`, "a duration"}},
		"two values":                  {files: map[string]string{"release-delay": "soon", "socket-mode": "rw"}, says: []string{"/release-delay", "/socket-mode"}},
		"files that are no options":   {files: map[string]string{"colour": "red", "size": "1"}, says: []string{"/colour", "/size", "no option of serve"}},
		"a folder that names another": {files: map[string]string{"config-dir": "/x"}, says: []string{"/config-dir", "no option of serve"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, o := served(t, tt.env, "--config-dir="+writeFolder(t, tt.files))
			o.wants(t, option.Usage, "", tt.says...)
		})
	}
}

func TestAFileThatCannotBeReadAndAFolderThatIsNotThereAreRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "owners"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, o := served(t, nil, "--config-dir="+dir)
	o.wants(t, option.Usage, "", "owners", "directory")
	_, o = served(t, nil, "--config-dir="+filepath.Join(dir, "none"))
	o.wants(t, option.Usage, "", "--config-dir", "none", "expected a folder")
}

func TestAWrongFlagIsRefusedWithWhatItGotAndWhatItTakes(t *testing.T) {
	tests := map[string]struct {
		args []string
		says []string
	}{
		"a release delay that is no duration":  {[]string{"--release-delay=banana"}, []string{"--release-delay", `"banana"`, "a duration with its unit"}},
		"a negative release delay":             {[]string{"--release-delay=-1s"}, []string{"--release-delay", "-1s", "0s or more"}},
		"an expiration that is not positive":   {[]string{"--ipam-expiration=0s"}, []string{"--ipam-expiration", "0s", "more than 0s"}},
		"no plugin process at all":             {[]string{"--max-plugin-processes=0"}, []string{"--max-plugin-processes", "0", "1 to 1024"}},
		"a count that is none":                 {[]string{"--max-queued-requests=many"}, []string{"--max-queued-requests", `"many"`, "a whole number"}},
		"a mode that is not octal":             {[]string{"--socket-mode=rw"}, []string{"--socket-mode", `"rw"`, "such as 0660"}},
		"a mode with more than permissions":    {[]string{"--socket-mode=4660"}, []string{"--socket-mode", `"4660"`, "0777"}},
		"a router address that is none":        {[]string{"--local-router-ipv4=banana"}, []string{"--local-router-ipv4", `"banana"`, "an IPv4 address"}},
		"a router address of the other family": {[]string{"--local-router-ipv4=fd00::1"}, []string{"--local-router-ipv4", `"fd00::1"`, "an IPv4 address"}},
		"a range that is none":                 {[]string{"--ipv6-range=fd00::/200"}, []string{"--ipv6-range", `"fd00::/200"`, "an IPv6 prefix"}},
		"both families off":                    {[]string{"--enable-ipv4=false", "--enable-ipv6=false"}, []string{"--enable-ipv4", "--enable-ipv6", "true"}},
		"a boolean that is none":               {[]string{"--enable-ipv6=perhaps"}, []string{"--enable-ipv6", `"perhaps"`, "true or false"}},
		"a pool without a network":             {[]string{"--pool=blue"}, []string{"--pool", `"blue"`, "name=network"}},
		"a pool with an empty network":         {[]string{"--pool=blue="}, []string{"--pool", `"blue="`, "name=network"}},
		"a pool that is given twice":           {[]string{"--pool=a=x", "--pool=a=y"}, []string{"--pool", `"a=y"`, "each pool once"}},
		"two pools on one network":             {[]string{"--pool=a=pods,b=pods"}, []string{"--pool", `"pods"`, "a network of its own"}},
		"two networks for the default pool":    {[]string{"--pool=default=x", "--cni-network=y"}, []string{"--pool", `"default=x"`, "--cni-network", `"y"`, "one of them"}},
		"a metrics address without a port":     {[]string{"--metrics-address=0.0.0.0"}, []string{"--metrics-address", `"0.0.0.0"`, "host:port"}},
		"an unknown log level":                 {[]string{"--log-level=loud"}, []string{"--log-level", `"loud"`, "one of error, warning, info, debug, trace"}},
		"a log level without any line":         {[]string{"--log-level=panic"}, []string{"--log-level", `"panic"`}},
		"an unknown log format":                {[]string{"--log-format=xml"}, []string{"--log-format", `"xml"`, "text, json"}},
		"an allowed user that is no number":    {[]string{"--allow-uids=root!"}, []string{"--allow-uids", `"root!"`, "numbers"}},
		"an allowed group that is negative":    {[]string{"--allow-gids=-1"}, []string{"--allow-gids", `"-1"`, "numbers"}},
		"an interface name that is too long":   {[]string{"--cni-ifname=an-interface-name"}, []string{"--cni-ifname", `"an-interface-name"`, "15 characters"}},
		"a flag that does not exist":           {[]string{"--colour=red"}, []string{"--colour"}},
		"a flag without its value":             {[]string{"--owners"}, []string{"--owners"}},
		"an argument":                          {[]string{"now"}, []string{`"now"`, "no argument"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, o := served(t, nil, append([]string{"--node-name=n"}, tt.args...)...)
			o.wants(t, option.Usage, "", append(tt.says, "Run 'delegated-ipam serve --help'")...)
		})
	}
}

func TestADaemonThatFailsEndsWithStatus1AndItsReason(t *testing.T) {
	p := testProgram(nil)
	p.serve = func(context.Context, app.Config, logrus.FieldLogger) error { return errors.New("the disk is full") }
	p.runHere(t, "serve", "--node-name=n").wants(t, option.Failed, "", "Error: serve: the disk is full")
}

func TestRelativePathsDoNotDependOnTheWorkingFolder(t *testing.T) {
	profile := profileFile(t)
	t.Chdir(filepath.Dir(profile))
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	got, o := served(t, nil, "--socket-path=a.sock", "--state-dir=b", "--cni-conf-dir=./c", "--cni-conf-file=d", "--cni-bin-dir=e,/f", "--plugin-profile=p.json")
	o.wants(t, option.Done, "")
	if o.code != option.Done {
		return
	}
	for path, want := range map[string]string{
		got.SocketPath: "a.sock", got.StateDir: "b", got.CNIConfDir: "c", got.CNIConfFile: "d", got.CNIBinDirs[0]: "e", got.PluginProfiles[0]: "p.json",
	} {
		if path != filepath.Join(here, want) {
			t.Errorf("got %s; want %s in %s", path, want, here)
		}
	}
	if got.CNIBinDirs[1] != "/f" {
		t.Errorf("the second plugin folder is %s; want /f", got.CNIBinDirs[1])
	}
}

func TestTheSamePoolMayBeGivenByBothItsOptions(t *testing.T) {
	got, o := served(t, nil, "--pool=default=x", "--cni-network=x")
	o.wants(t, option.Done, "")
	if got.Pools["default"] != "x" || len(got.Pools) != 1 {
		t.Errorf("pools are %q; want default on x alone", got.Pools)
	}
}

func TestAVariableThatIsNoOptionIsWarnedOf(t *testing.T) {
	_, o := served(t, map[string]string{"DELEGATED_IPAM_SERVICE_HOST": "10.0.0.1", "OTHER": "x", "DELEGATED_IPAM_OWNERS": "router", "DELEGATED_IPAM_CONFIG_DIR": ""})
	o.wants(t, option.Done, "", "level=warning", "DELEGATED_IPAM_SERVICE_HOST")
	if n := strings.Count(o.stderr, "\n"); n != 1 {
		t.Errorf("%d lines were logged; want one: %s", n, o.stderr)
	}
}

func TestTheLogSaysAtLevelDebugWhereEachOptionCameFrom(t *testing.T) {
	_, o := served(t, map[string]string{"DELEGATED_IPAM_OWNERS": "router"}, "--log-level=debug", "--log-format=json")
	o.wants(t, option.Done, "", `"owners":"router (environment)"`, `"log-level":"debug (flag)"`, `"state-dir":"/var/lib/delegated-ipam (default)"`)
}

func TestTheNodeIsCalledAsTheHostIfNobodySays(t *testing.T) {
	want, err := os.Hostname()
	if err != nil {
		t.Skip("this host has no name: ", err)
	}
	got, o := served(t, nil)
	o.wants(t, option.Done, "")
	if got.NodeName != want {
		t.Errorf("the node is called %q; want %q", got.NodeName, want)
	}
}
