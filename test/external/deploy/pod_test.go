package deploy

import (
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The commands of the probes, and that of "helm test", of a ready daemon succeed: the kubelet cannot use a unix socket.
func TestProbes(t *testing.T) {
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	n.Start(t, "--enable-ipv6=false")
	c := render(t, installations[0]).daemon
	test := named[*corev1.Pod](t, everything(t), "delegated-ipam-test-daemon").Spec.Containers[0]
	for _, command := range [][]string{c.StartupProbe.Exec.Command, c.ReadinessProbe.Exec.Command, c.LivenessProbe.Exec.Command, test.Command} {
		// The machine may be busy.
		if out := n.Command(t, append(slices.Clone(command[1:]), "--timeout=30s")...); out.ExitCode != 0 {
			t.Errorf("%v: exit status %d: %s", command, out.ExitCode, out.Stderr)
		}
	}
}

// A start waits for the state directory while the previous daemon stops. With another limit of a plugin call the chart
// allows more.
func TestStopAndStartTimes(t *testing.T) {
	wantTimes := func(t *testing.T, d deployed, stop time.Duration) {
		t.Helper()
		p := d.daemon.StartupProbe
		grace, start := seconds(*d.pod.TerminationGracePeriodSeconds), seconds(int64(p.PeriodSeconds*p.FailureThreshold))
		if grace < stop || grace > stop+2*time.Minute || start < grace {
			t.Errorf("the grace period is %s and the startup probe allows %s; want %s or little more", grace, start, stop)
		}
	}
	for _, limit := range []string{"500ms", "1m0.5s", "5m"} {
		longer := stopTimeout(t, "--plugin-timeout="+limit)
		all := everything(t, "reclaim.enabled=true,daemon.options.plugin-timeout="+limit)
		wantTimes(t, deployedIn(t, all, "delegated-ipam"), longer)
		reclaim := named[*batchv1.CronJob](t, all, "delegated-ipam-reclaim").Spec.JobTemplate.Spec.Template.Spec
		call, err := time.ParseDuration(limit)
		if grace := seconds(*reclaim.TerminationGracePeriodSeconds); err != nil || grace < call {
			t.Errorf("reclaim has %s; want %s for a call", grace, limit)
		}
	}
	stop := stopTimeout(t)
	each(t, func(t *testing.T, d deployed) {
		wanted := stop
		if d.inChart() {
			wanted += time.Minute // the kubelet stops it after cilium-agent (--hive-stop-timeout), within the same time
		}
		wantTimes(t, d, wanted)
	})
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// stopTimeout returns how long the real daemon waits for plugin calls when it stops, with the
// options of every installation and some flags.
func stopTimeout(t *testing.T, flags ...string) time.Duration {
	t.Helper()
	n := harness.NewNode(t)
	n.WriteNetwork(t, "10-pods", harness.IPv4Only())
	s := n.Start(t, append(flags, "--enable-ipv6=false")...)
	s.Stop(t)
	match := regexp.MustCompile(`msg="Stopping: [^"]*" timeout=(\S+)`).FindStringSubmatch(s.Log())
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
	var first corev1.Container
	for at, i := range installations {
		d := render(t, i)
		c := *d.daemon.DeepCopy()
		c.RestartPolicy, c.VolumeMounts, c.SecurityContext.AppArmorProfile = nil, nil, nil
		if at == 0 {
			first = c
		}
		if d := diff.Diff(first, c); d != "" {
			t.Errorf("%s differs from %s:\n%s", i.name, installations[0].name, d)
		}
	}
}

// The plugin of reclaim gets the options, the configuration, the executables and the user of the daemon.
func TestReclaimAsDaemon(t *testing.T) {
	all := overlay(t, "reclaim", "")
	d := deployed{pod: named[*batchv1.CronJob](t, all, "delegated-ipam-reclaim").Spec.JobTemplate.Spec.Template.Spec}
	daemon := deployedIn(t, all, "delegated-ipam")
	c := container(t, d.pod.InitContainers, "reclaim")
	for _, m := range daemon.daemon.VolumeMounts {
		has := slices.ContainsFunc(c.VolumeMounts, func(own corev1.VolumeMount) bool { return reflect.DeepEqual(own, m) })
		if m.ReadOnly && m.Name != "machine-id" && (!has || !reflect.DeepEqual(d.volume(t, m.Name), daemon.volume(t, m.Name))) {
			t.Errorf("reclaim lacks the mount %v of the daemon", m)
		}
	}
	if !reflect.DeepEqual(c.SecurityContext, daemon.daemon.SecurityContext) || d.pod.HostNetwork != daemon.pod.HostNetwork || c.Image != daemon.daemon.Image {
		t.Error("user, namespace or image differ from those of the daemon")
	}
}
