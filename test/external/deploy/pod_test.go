package deploy

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// tokenPath is where client-go looks for what a pod reaches the API server with.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func TestTheSidecarFindsTheHostsDirsAtTheirOwnPaths(t *testing.T) {
	want := map[string]mount{
		"/etc/delegated-ipam/options": {"ConfigMap", true},
		"/etc/delegated-ipam/network": {"ConfigMap", true},
		"/etc/cni/net.d":              {"/etc/cni/net.d", true},
		"/opt/cni/bin":                {"/opt/cni/bin", true},
		"/var/lib/cni/networks":       {"/var/lib/cni/networks", false},
		"/var/run/cilium":             {"/var/run/cilium", false},
		"/var/lib/delegated-ipam":     {"/var/lib/delegated-ipam", false},
		"/etc/machine-id":             {"/etc/machine-id", true},
	}
	each(t, func(t *testing.T, d deployed) {
		want := maps.Clone(want)
		if d.inChart() {
			want[tokenPath] = mount{"nothing", true}
		}
		got := d.mounts(t, d.sidecar)
		for path := range maps.Keys(want) {
			if got[path] != want[path] {
				t.Errorf("%s is %v, want %v", path, got[path], want[path])
			}
		}
		for path := range got {
			if _, known := want[path]; !known {
				t.Errorf("%s is mounted for nothing: %v", path, got[path])
			}
		}
	})
}

func TestDirsOfTheHostAreMadeAndTheMachineIDIsNot(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		for _, m := range d.sidecar.VolumeMounts {
			host := d.volume(t, m.Name).HostPath
			if host == nil {
				continue
			}
			want := corev1.HostPathDirectoryOrCreate
			if host.Path == "/etc/machine-id" {
				want = corev1.HostPathFile // an empty one would mean a first boot
			}
			if host.Type == nil || *host.Type != want {
				t.Errorf("%s is of type %v, want %s", host.Path, host.Type, want)
			}
		}
	})
}

// The agent's socket directory and the sidecar's are one, by whatever volume.
func TestTheAgentFindsTheSocketWhereTheSidecarMakesIt(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		if !d.inChart() {
			t.Skip("the agent is in another pod, with this directory of the host")
		}
		agent := d.mounts(t, container(t, d.pod.Containers, "cilium-agent"))
		if got := agent["/var/run/cilium"].from; got != "/var/run/cilium" {
			t.Errorf("the agent finds %s", got)
		}
	})
}

func TestTheSidecarHasOnlyTheRightsThatHostLocalNeeds(t *testing.T) {
	want := &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsGroup: new(int64(65532)),
		ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions: &corev1.SELinuxOptions{Level: "s0", Type: "spc_t"},
	}
	each(t, func(t *testing.T, d deployed) {
		if got := d.sidecar.SecurityContext; !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestTheSidecarHasNoToken(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		automatic := d.pod.AutomountServiceAccountToken == nil || *d.pod.AutomountServiceAccountToken
		// The kubelet's admission leaves a path alone on which something is mounted.
		_, covered := d.mounts(t, d.sidecar)[tokenPath]
		if automatic && !covered {
			t.Error("it is given the token of the pod's service account")
		}
		for _, m := range d.sidecar.VolumeMounts {
			if v := d.volume(t, m.Name); v.Projected != nil || v.Secret != nil {
				t.Errorf("%s may hold a secret", m.MountPath)
			}
		}
	})
}

func TestMemoryIsBoundedAndCPUIsNot(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		r := d.sidecar.Resources
		if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().Cmp(*r.Requests.Memory()) <= 0 {
			t.Errorf("requests %v, limits %v", r.Requests, r.Limits)
		}
		if !r.Limits.Cpu().IsZero() {
			t.Error("it may be throttled while it holds a lock of the plugin")
		}
		if !slices.Contains(d.sidecar.Args, "--max-plugin-processes=8") {
			t.Errorf("%v bound no number of plugin processes, and so no memory", d.sidecar.Args)
		}
	})
}

func TestTheProbesAskWhatTheirKindMeans(t *testing.T) {
	each(t, func(t *testing.T, d deployed) {
		for kind, probe := range map[string]*corev1.Probe{"startup": d.sidecar.StartupProbe, "ready": d.sidecar.ReadinessProbe, "live": d.sidecar.LivenessProbe} {
			if probe == nil || probe.Exec == nil {
				t.Errorf("%s: %v, want a command: the kubelet cannot ask on a unix socket", kind, probe)
				continue
			}
			if want := []string{"delegated-ipam", "probe", kind}; !slices.Equal(probe.Exec.Command, want) {
				t.Errorf("%v, want %v", probe.Exec.Command, want)
			}
			if probe.TimeoutSeconds < 2 {
				t.Errorf("%s: %d s; the command itself waits almost one", kind, probe.TimeoutSeconds)
			}
		}
	})
}

// agentStop is how long cilium-agent may take to stop (--hive-stop-timeout).
const agentStop = time.Minute

// A start waits for the state directory while another sidecar of the node ends.
func TestAStartIsGivenTheTimeThatAStopMayTake(t *testing.T) {
	patience := patienceOfAStop(t)
	each(t, func(t *testing.T, d deployed) {
		grace := time.Duration(*d.pod.TerminationGracePeriodSeconds) * time.Second
		wanted := patience
		if d.inChart() {
			// The kubelet ends a native sidecar after the others, in what they leave of the time.
			wanted += agentStop
		}
		if grace < wanted {
			t.Errorf("a stop is given %s, and takes up to %s, of which %s are for plugin calls", grace, wanted, patience)
		}
		p := d.sidecar.StartupProbe
		if start := time.Duration(p.PeriodSeconds*p.FailureThreshold) * time.Second; start < grace {
			t.Errorf("a start is given %s, and a stop %s", start, grace)
		}
	})
}

// patienceOfAStop is how long the real sidecar says that it waits for plugin calls
// with the options that every installation has.
func patienceOfAStop(t *testing.T) time.Duration {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	s := n.Start(t, "--enable-ipv6=false")
	s.Stop(t)
	_, after, said := strings.Cut(s.Log(), "patience=")
	if !said {
		t.Fatalf("it does not say how long it waits:\n%s", s.Log())
	}
	patience, err := time.ParseDuration(strings.Fields(after)[0])
	if err != nil || patience < time.Minute {
		t.Fatalf("its patience is %s, %v", patience, err)
	}
	return patience
}

// The values of the chart repeat the container of the DaemonSet: but for volumes
// and its place in the pod they must not differ.
func TestTheSidecarIsTheSameInEachInstallation(t *testing.T) {
	want := bare(render(t, installations[0]))
	for _, i := range installations[1:] {
		if got := bare(render(t, i)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\n%s: %+v", i.name, got, installations[0].name, want)
		}
	}
}

// bare is the sidecar's container without what belongs to the pod.
func bare(d deployed) corev1.Container {
	c := d.sidecar
	c.RestartPolicy, c.VolumeMounts = nil, nil
	return c
}
