package deploy

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// group is the group of the socket and of the bridge: one of those that systemd's allocation
// (UIDS-GIDS) leaves unused, and no image's default.
const group = 60913

// tokenPath is the path of the service account's token.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func TestMounts(t *testing.T) {
	want := map[string]mount{
		"/etc/delegated-ipam/options":  {"ConfigMap", true},
		"/etc/delegated-ipam/network":  {"/run/delegated-ipam", true},
		"/etc/delegated-ipam/conflist": {"ConfigMap", true},
		"/etc/cni/net.d":               {"/etc/cni/net.d", true},
		"/opt/cni/bin":                 {"/opt/cni/bin", true},
		"/var/lib/cni/networks":        {"/var/lib/cni/networks", false},
		"/var/run/cilium":              {"/var/run/cilium", false},
		"/var/lib/delegated-ipam":      {"/var/lib/delegated-ipam", false},
		"/etc/machine-id":              {"/etc/machine-id", true},
	}
	each(t, func(t *testing.T, d deployed) {
		want := maps.Clone(want)
		if d.inChart() {
			want[tokenPath] = mount{"nothing", true}
		}
		got := d.mounts(t, d.sidecar)
		for path := range maps.Keys(want) {
			if got[path] != want[path] {
				t.Errorf("the mount of %s is %v; want %v", path, got[path], want[path])
			}
		}
		for path := range got {
			if _, known := want[path]; !known {
				t.Errorf("the mount of %s is not needed: %v", path, got[path])
			}
		}
	})
}

func TestHostPathTypes(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		for _, m := range d.sidecar.VolumeMounts {
			host := d.volume(t, m.Name).HostPath
			if host == nil {
				continue
			}
			want := corev1.HostPathDirectoryOrCreate
			if host.Path == "/etc/machine-id" {
				want = corev1.HostPathFile // a created one would mean a first boot
			}
			if host.Type == nil || *host.Type != want {
				t.Errorf("the type of %s is %v; want %s", host.Path, host.Type, want)
			}
		}
	})
}

// The agent and the sidecar must have the same directory for sockets.
func TestAgentSocketDir(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		if !d.inChart() {
			t.Skip("the agent is in another pod and has the host's dir")
		}
		agent := d.mounts(t, container(t, d.pod.Containers, "cilium-agent"))
		if got := agent["/var/run/cilium"].from; got != "/var/run/cilium" {
			t.Errorf("the agent has %s", got)
		}
	})
}

func TestSecurityContext(t *testing.T) {
	want := &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(group)),
		ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions: &corev1.SELinuxOptions{Level: "s0", Type: "spc_t"},
	}
	each(t, func(t *testing.T, d deployed) {
		if got := d.sidecar.SecurityContext; !reflect.DeepEqual(got, want) {
			t.Errorf("got %v; want %v", got, want)
		}
	})
}

func TestNoServiceAccountToken(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		automatic := d.pod.AutomountServiceAccountToken == nil || *d.pod.AutomountServiceAccountToken
		// The kubelet mounts no token over another mount.
		_, covered := d.mounts(t, d.sidecar)[tokenPath]
		if automatic && !covered {
			t.Error("the sidecar gets the token of the pod's service account")
		}
		for _, m := range d.sidecar.VolumeMounts {
			if v := d.volume(t, m.Name); v.Projected != nil || v.Secret != nil {
				t.Errorf("%s may have a secret", m.MountPath)
			}
		}
	})
}

func TestResources(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		r := d.sidecar.Resources
		if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().Cmp(*r.Requests.Memory()) <= 0 {
			t.Errorf("requests %v, limits %v", r.Requests, r.Limits)
		}
		if !r.Limits.Cpu().IsZero() {
			t.Error("a CPU limit may throttle the sidecar while it holds a lock of the plugin")
		}
		if !slices.Contains(d.sidecar.Args, "--max-plugin-processes=8") {
			t.Errorf("%v do not limit the plugin processes, whose memory counts", d.sidecar.Args)
		}
	})
}

func TestProbes(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		for kind, probe := range map[string]*corev1.Probe{"startup": d.sidecar.StartupProbe, "ready": d.sidecar.ReadinessProbe, "live": d.sidecar.LivenessProbe} {
			if probe == nil || probe.Exec == nil {
				t.Errorf("the %s probe is %v; want a command, because the kubelet cannot use a unix socket", kind, probe)
				continue
			}
			if want := []string{"delegated-ipam", "probe", kind}; !slices.Equal(probe.Exec.Command, want) {
				t.Errorf("the command is %v; want %v", probe.Exec.Command, want)
			}
			if probe.TimeoutSeconds < 2 {
				t.Errorf("the timeout of the %s probe is %d s; the command waits almost one", kind, probe.TimeoutSeconds)
			}
		}
	})
}

// wantReplaced wants a hung process to be replaced within 100 s.
func wantReplaced(t *testing.T, p *corev1.Probe) {
	t.Helper()
	if p.TerminationGracePeriodSeconds == nil {
		t.Fatal("the liveness probe has no grace period: a hung process would get the pod's")
	}
	if took := p.PeriodSeconds*p.FailureThreshold + p.TimeoutSeconds + int32(*p.TerminationGracePeriodSeconds); took > 100 {
		t.Errorf("a hung process is replaced within %d s; want 100", took)
	}
}

func TestHungProcess(t *testing.T) {
	each(t, func(t *testing.T, d deployed) { wantReplaced(t, d.sidecar.LivenessProbe) })
}

// agentStop is the time limit for cilium-agent to stop (--hive-stop-timeout).
const agentStop = time.Minute

// A start waits for the state directory while the previous sidecar stops.
func TestStopAndStartTimes(t *testing.T) {
	timeout := stopTimeout(t)
	each(t, func(t *testing.T, d deployed) {
		grace := time.Duration(*d.pod.TerminationGracePeriodSeconds) * time.Second
		wanted := timeout
		if d.inChart() {
			// The kubelet stops a native sidecar after the other containers, within the same time.
			wanted += agentStop
		}
		if grace < wanted {
			t.Errorf("the grace period is %s; want %s, of which %s are for plugin calls", grace, wanted, timeout)
		}
		p := d.sidecar.StartupProbe
		if start := time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second; start < grace {
			t.Errorf("the startup probe allows %s, less than the grace period %s", start, grace)
		}
	})
}

// stoppingLine matches the log line with the time limit of a stop.
var stoppingLine = regexp.MustCompile(`msg="Stopping: [^"]*" timeout=(\S+)`)

// stopTimeout returns how long the real sidecar waits for plugin calls when it stops, with the
// options of every installation.
func stopTimeout(t *testing.T) time.Duration {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	s := n.Start(t, "--enable-ipv6=false")
	s.Stop(t)
	match := stoppingLine.FindStringSubmatch(s.Log())
	if match == nil {
		t.Fatalf("the log lacks the time limit of the stop:\n%s", s.Log())
	}
	timeout, err := time.ParseDuration(match[1])
	if err != nil || timeout < time.Minute {
		t.Fatalf("the time limit of the stop is %s, %v", timeout, err)
	}
	return timeout
}

// The values of the chart repeat the container of the DaemonSet, which must be equal except for
// volumes and its place in the pod.
func TestSameContainer(t *testing.T) {
	want := bare(render(t, installations[0]))
	for _, i := range installations[1:] {
		if d := diff.Diff(want, bare(render(t, i))); d != "" {
			t.Errorf("%s differs from %s:\n%s", i.name, installations[0].name, d)
		}
	}
}

// bare returns the sidecar's container without the fields that depend on the pod.
func bare(d deployed) corev1.Container {
	c := d.sidecar
	c.RestartPolicy, c.VolumeMounts = nil, nil
	return c
}
