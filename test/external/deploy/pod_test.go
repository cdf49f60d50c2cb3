package deploy

import (
	"regexp"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// tokenPath is the path of the service account's token.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func TestMounts(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		want := map[string]mount{
			"/etc/delegated-ipam/options":  {"ConfigMap", true},
			"/etc/delegated-ipam/network":  {"/run/delegated-ipam-network", true},
			"/etc/delegated-ipam/conflist": {"ConfigMap", true},
			"/etc/cni/net.d":               {"/etc/cni/net.d", true},
			"/opt/cni/bin":                 {"/opt/cni/bin", true},
			"/var/lib/cni/networks":        {"/var/lib/cni/networks", false},
			"/var/run/delegated-ipam":      {"/var/run/delegated-ipam", false},
			"/var/lib/delegated-ipam":      {"/var/lib/delegated-ipam", false},
			"/etc/machine-id":              {"/etc/machine-id", true},
		}
		if d.inChart() {
			want[tokenPath] = mount{"nothing", true}
		}
		if slices.ContainsFunc(d.pod.InitContainers, func(c corev1.Container) bool { return c.Name == "install-cni" }) {
			want["/var/run/netns"] = mount{"/var/run/netns", true}
		}
		wantMounts(t, d, d.daemon, want)
		for _, m := range d.daemon.VolumeMounts {
			v := d.volume(t, m.Name)
			if v.Projected != nil || v.Secret != nil {
				t.Errorf("%s may have a secret", m.MountPath)
			}
			if v.HostPath == nil {
				continue
			}
			want := corev1.HostPathDirectoryOrCreate
			if v.HostPath.Path == "/etc/machine-id" {
				want = corev1.HostPathFile // a created one would mean a first boot
			}
			if got := v.HostPath.Type; got == nil || *got != want {
				t.Errorf("the type of %s is %v; want %s", v.HostPath.Path, got, want)
			}
		}
		// The kubelet mounts no token over another mount.
		if automatic := d.pod.AutomountServiceAccountToken; (automatic == nil || *automatic) && !d.inChart() {
			t.Error("the daemon gets the token of the pod's service account")
		}
	})
}

// The container of the first installation, to which TestSameContainer compares the others. testdata/chart.yaml shows it.
func TestProbes(t *testing.T) {
	c := bare(render(t, installations[0]))
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	n.Start(t, "--enable-ipv6=false")
	for kind, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "ready": c.ReadinessProbe, "live": c.LivenessProbe} {
		// The kubelet cannot use a unix socket. The command waits almost one second.
		if want := []string{"delegated-ipam", "probe", kind}; !slices.Equal(probe.Exec.Command, want) || probe.TimeoutSeconds < 2 {
			t.Errorf("the command is %v in %d s; want %v", probe.Exec.Command, probe.TimeoutSeconds, want)
		}
		// The machine may be busy.
		if out := n.Command(t, append(slices.Clone(probe.Exec.Command[1:]), "--timeout=30s")...); out.ExitCode != 0 {
			t.Errorf("%s of a ready daemon: exit status %d: %s", kind, out.ExitCode, out.Stderr)
		}
	}
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

// agentStop is the time limit for cilium-agent to stop (--hive-stop-timeout).
const agentStop = time.Minute

// A start waits for the state directory while the previous daemon stops.
func TestStopAndStartTimes(t *testing.T) {
	timeout := stopTimeout(t)
	// With another limit of a plugin call the chart allows more.
	for _, limit := range []string{"500ms", "1m0.5s", "5m"} {
		longer := stopTimeout(t, "--plugin-timeout="+limit)
		all := daemonSets(t, "reclaim.enabled=true,daemon.options.plugin-timeout="+limit)
		pod := named[*appsv1.DaemonSet](t, all, "delegated-ipam").Spec.Template.Spec
		p := container(t, pod.Containers, "delegated-ipam").StartupProbe
		grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
		if start := time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second; grace < longer || grace > longer+time.Minute || start < grace {
			t.Errorf("with a plugin-timeout of %s the grace period is %s and the startup probe allows %s; want at least %s", limit, grace, start, longer)
		}
		call, err := time.ParseDuration(limit)
		check.Must(t, err)
		reclaim := named[*batchv1.CronJob](t, all, "delegated-ipam-reclaim").Spec.JobTemplate.Spec.Template.Spec
		if grace := time.Duration(*reclaim.TerminationGracePeriodSeconds) * time.Second; grace < call {
			t.Errorf("reclaim has %s; want %s for a call", grace, call)
		}
	}
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
		p := d.daemon.StartupProbe
		if start := time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second; start < grace {
			t.Errorf("the startup probe allows %s, less than the grace period %s", start, grace)
		}
	})
}

// stoppingLine matches the log line with the time limit of a stop.
var stoppingLine = regexp.MustCompile(`msg="Stopping: [^"]*" timeout=(\S+)`)

// stopTimeout returns how long the real daemon waits for plugin calls when it stops, with the
// options of every installation and some flags.
func stopTimeout(t *testing.T, flags ...string) time.Duration {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	s := n.Start(t, append(flags, "--enable-ipv6=false")...)
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

// bare returns the daemon's container without the fields that depend on the pod.
func bare(d deployed) corev1.Container {
	c := *d.daemon.DeepCopy()
	c.RestartPolicy, c.VolumeMounts, c.SecurityContext.AppArmorProfile = nil, nil, nil
	return c
}
