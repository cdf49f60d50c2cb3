package nodenetwork

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/dirwatch"
	"github.com/delegated-ipam/delegated-ipam/internal/files"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

const (
	first  = `"subnet":"10.244.1.0/24"`
	second = `"subnet":"10.244.2.0/24"`
)

// A node registers and is assigned its podCIDRs later: no Event is created.
func TestStartOrder(t *testing.T) {
	simulate(t, ranges, func(t *testing.T, f *fixture) {
		defer f.start(t)()
		f.wantReady(t, reasonNodeMissing)
		advance(40 * time.Second)
		f.create(t, "1")
		f.wantReady(t, reasonNoPodCIDR)
		f.wantFile(t, "")
		advance(40 * time.Second)
		f.update(t, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24", "fd00::/64"} })
		f.wantReady(t, "")
		f.wantFile(t, `[[{`+first+`}],[{"subnet":"fd00::/64"}]]`)
		advance(time.Hour)
		f.wantEvents(t, "")
	})
}

func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		prepare  func(t *testing.T, f *fixture)
		want     string
	}{
		"no podCIDRs":      {ranges, func(t *testing.T, f *fixture) { f.create(t, "1") }, reasonNoPodCIDR},
		"no Node":          {ranges, func(*testing.T, *fixture) {}, reasonNodeMissing},
		"invalid template": {"{", func(t *testing.T, f *fixture) { f.create(t, "1", "10.244.1.0/24") }, reasonTemplateRefused},
		"no template": {ranges, func(t *testing.T, f *fixture) {
			f.create(t, "1", "10.244.1.0/24")
			check.Must(t, os.Remove(f.template))
		}, reasonTemplateRefused},
		"shared range":    {fixed, func(t *testing.T, f *fixture) { f.create(t, "1", "10.244.1.0/24") }, reasonSharedRange},
		"no right to get": {ranges, func(_ *testing.T, f *fixture) { f.failRequests(forbidden(), "get") }, reasonNotPermitted},
		"no directory": {ranges, func(t *testing.T, f *fixture) {
			f.create(t, "1", "10.244.1.0/24")
			f.output = output(filepath.Join(t.TempDir(), "none", "pods.conflist"))
		}, reasonNotWritten},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, c.template, func(t *testing.T, f *fixture) {
				c.prepare(t, f)
				defer f.start(t)()
				f.wantReady(t, c.want)
				f.wantFile(t, "")
				advance(59 * time.Second)
				f.wantEvents(t, "")
				advance(time.Hour)
				f.wantEvents(t, c.want)
				if got := testutil.ToFloat64(f.status.condition.WithLabelValues(c.want)); got != 1 {
					t.Errorf("problem is %v; want 1", got)
				}
			})
		})
	}
}

func TestNodeRecreated(t *testing.T) {
	simulate(t, ranges, func(t *testing.T, f *fixture) {
		f.create(t, "1", "10.244.1.0/24")
		defer f.start(t)()
		f.wantFile(t, first)
		f.delete(t)
		f.wantFile(t, "")
		f.wantReady(t, reasonNodeMissing)
		f.create(t, "2")
		f.wantFile(t, "")
		f.wantReady(t, reasonNoPodCIDR)
		f.update(t, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.2.0/24"} })
		f.wantFile(t, second)
		f.wantReady(t, "")
	})
}

// A Node of the API server's cache that is older than the Node changes nothing.
func TestStaleList(t *testing.T) {
	simulate(t, ranges, func(t *testing.T, f *fixture) {
		f.create(t, "2", "10.244.2.0/24")
		defer f.start(t)()
		f.wantFile(t, second)
		f.stream.Modify(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.name, UID: "1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}})
		advance(time.Minute)
		f.wantFile(t, second)
		f.wantReady(t, "")
	})
}

func TestTemplateChanged(t *testing.T) {
	simulate(t, labels, func(t *testing.T, f *fixture) {
		f.create(t, "1")
		defer f.start(t)()
		f.wantReady(t, reasonTemplateRefused) // no such label
		f.update(t, func(n *corev1.Node) { n.Labels = map[string]string{"zone": "a"} })
		f.wantFile(t, `"zone":"a"`)
		f.wantReady(t, "")
		f.update(t, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24"} })
		f.setTemplate(t, ranges)
		advance(dirwatch.RereadInterval)
		f.wantFile(t, first)
		f.wantReady(t, "")
	})
}

// A template that becomes invalid does not stop a working node. A node that is created again gets no
// file.
func TestTemplateBecomesInvalid(t *testing.T) {
	for name, template := range map[string]string{"invalid": "{", "shared range": fixed} {
		t.Run(name, func(t *testing.T) {
			simulate(t, ranges, func(t *testing.T, f *fixture) {
				f.create(t, "1", "10.244.1.0/24")
				stop := f.start(t)
				f.setTemplate(t, template)
				advance(dirwatch.RereadInterval)
				f.wantFile(t, first)
				f.wantReady(t, "template")
				stop()
				// A changed ConfigMap often restarts the process, too.
				stop = f.start(t)
				f.wantFile(t, first)
				f.wantReady(t, "template")
				stop()
				f.delete(t)
				f.create(t, "2", "10.244.1.0/24")
				defer f.start(t)()
				f.wantFile(t, "")
			})
		})
	}
}

// A range that a Node had by an annotation may be another node's when the annotation is removed, also while no process
// runs, or with a template that is refused meanwhile.
func TestAnnotationRemoved(t *testing.T) {
	const annotation = "example.com/range"
	own := strings.Replace(fixed, "10.0.0.0/16", "${annotations["+annotation+"]}", 1)
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, own, func(t *testing.T, f *fixture) {
				f.create(t, "1")
				f.update(t, func(n *corev1.Node) { n.Annotations = map[string]string{annotation: "10.9.1.0/24"} })
				stop := f.start(t)
				f.wantFile(t, `"subnet":"10.9.1.0/24"`)
				f.setTemplate(t, "{")
				advance(dirwatch.RereadInterval)
				f.wantFile(t, `"subnet":"10.9.1.0/24"`)
				if stopped {
					stop()
				}
				f.update(t, func(n *corev1.Node) { n.Annotations = nil })
				if stopped {
					stop = f.start(t)
				}
				defer stop()
				f.wantFile(t, "")
				f.setTemplate(t, own)
				advance(dirwatch.RereadInterval)
				f.wantFile(t, "")
				f.wantReady(t, reasonTemplateRefused)
			})
		})
	}
}

func TestNoFileAfterSingleNode(t *testing.T) {
	simulate(t, fixed, func(t *testing.T, f *fixture) {
		f.create(t, "1", "10.244.1.0/24")
		f.options.SingleNode = true
		stop := f.start(t)
		f.wantFile(t, `"subnet":"10.0.0.0/16"`)
		f.wantReady(t, "")
		stop()
		f.options.SingleNode = false
		defer f.start(t)()
		f.wantFile(t, "")
		f.wantReady(t, reasonSharedRange)
	})
}

// A restart with an unavailable API server keeps the file.
func TestAPIServerDown(t *testing.T) {
	simulate(t, ranges, func(t *testing.T, f *fixture) {
		f.create(t, "1", "10.244.1.0/24")
		stop := f.start(t)
		f.failRequests(unavailable(), "get", "list", "watch")
		advance(time.Hour)
		f.wantReady(t, "") // the file has the last podCIDRs
		stop()
		stop = f.start(t)
		advance(time.Hour)
		f.wantReady(t, reasonAPIUnavailable)
		f.wantFile(t, first)
		if got := testutil.ToFloat64(f.status.apiErrors.WithLabelValues("watch")); got == 0 {
			t.Error("no failed watch is counted")
		}
		f.failRequests(nil, "get", "list", "watch")
		advance(2 * time.Minute)
		f.wantReady(t, "")
		f.wantFile(t, first)
		if got := testutil.ToFloat64(f.status.changes.WithLabelValues(changeWritten)); got != 1 {
			t.Errorf("written %v times; want once", got)
		}
		stop()
	})
}

// The Node has been replaced when the API server responds again.
func TestRecreatedMeanwhile(t *testing.T) {
	simulate(t, ranges, func(t *testing.T, f *fixture) {
		f.create(t, "1", "10.244.1.0/24")
		f.start(t)()
		f.delete(t)
		f.failRequests(unavailable(), "get", "list", "watch")
		defer f.start(t)()
		advance(time.Minute)
		f.wantFile(t, first) // unknown whether the Node is deleted
		f.wantReady(t, reasonAPIUnavailable)
		f.failRequests(nil, "get", "list", "watch")
		f.create(t, "2", "10.244.2.0/24")
		advance(2 * time.Minute)
		f.wantFile(t, second)
		f.wantReady(t, "")
	})
}

func TestWatchNotPermitted(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			simulate(t, ranges, func(t *testing.T, f *fixture) {
				f.create(t, "1", "10.244.1.0/24")
				f.failRequests(forbidden(), verb)
				defer f.start(t)()
				f.wantFile(t, first)
				advance(5 * time.Second) // a first refusal may be that of a starting API server
				for range 100 {
					f.wantReady(t, reasonNotPermitted)
					advance(time.Second)
				}
				f.wantEvents(t, reasonNotPermitted)
				f.failRequests(nil, verb)
				advance(2 * time.Minute)
				f.wantReady(t, "")
			})
		})
	}
}

// A process that does not reconcile is replaced; one whose reconciliations fail, or have nothing to do,
// is not.
func TestHealthz(t *testing.T) {
	simulate(t, ranges, func(t *testing.T, f *fixture) {
		f.create(t, "1", "10.244.1.0/24")
		defer f.start(t)()
		advance(time.Hour)
		f.wantProbe(t, "/healthz", "")
		f.failRequests(unavailable(), "get", "list", "watch")
		f.setTemplate(t, "{")
		advance(time.Hour)
		f.wantProbe(t, "/healthz", "")
		f.failRequests(nil, "get", "list", "watch")
		advance(time.Minute)
		f.hanging = time.Hour
		f.setTemplate(t, ranges+" ")
		f.update(t, func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.2.0/24"} })
		advance(progressLimit)
		f.wantProbe(t, "/healthz", "")
		advance(time.Minute)
		f.wantProbe(t, "/healthz", "no progress for 6m")
		advance(time.Hour)
		f.wantProbe(t, "/healthz", "")
	})
}

func TestNothingWrittenWithoutChange(t *testing.T) {
	simulate(t, ranges, func(t *testing.T, f *fixture) {
		f.create(t, "1", "10.244.1.0/24")
		stop := f.start(t)
		before, err := os.Stat(string(f.output))
		check.Must(t, err)
		f.update(t, func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} })
		advance(time.Hour)
		stop()
		defer f.start(t)()
		after, err := os.Stat(string(f.output))
		if err != nil || !os.SameFile(before, after) || testutil.ToFloat64(f.status.changes.WithLabelValues(changeWritten)) != 1 {
			t.Errorf("the file was written again (%v)", err)
		}
		if after.Mode() != 0o644 {
			t.Errorf("its mode is %s; want 0644", after.Mode())
		}
		// Another process has changed it.
		check.Must(t, os.WriteFile(string(f.output), []byte("x"), 0o600))
		advance(dirwatch.RereadInterval)
		f.wantFile(t, first)
		check.Must(t, os.Remove(string(f.output)))
		advance(dirwatch.RereadInterval)
		f.wantFile(t, first)
	})
}

func TestTemporaryFiles(t *testing.T) {
	o := output(filepath.Join(t.TempDir(), "pods.conflist"))
	left := filepath.Join(filepath.Dir(string(o)), ".pods.conflist.1.tmp")
	check.Must(t, errors.Join(os.WriteFile(left, []byte("half"), 0o600), files.Replace(string(o), []byte("all"), fileMode)))
	o.removeTemporary()
	entries, err := os.ReadDir(filepath.Dir(string(o)))
	if err != nil || len(entries) != 1 || string(o.read()) != "all" {
		t.Errorf("the directory has %v, %v; want the file alone", entries, err)
	}
	// The path is a directory.
	taken := output(filepath.Join(t.TempDir(), "pods.conflist"))
	check.Must(t, os.MkdirAll(filepath.Join(string(taken), "x"), 0o755))
	if taken.read() == nil || files.Replace(string(taken), []byte("all"), fileMode) == nil || taken.remove() == nil {
		t.Error("a directory was read, replaced or removed")
	}
	if left, _ := filepath.Glob(files.TemporaryFiles(string(taken))); len(left) > 0 {
		t.Errorf("%v is left of the failed write", left)
	}
	if err := o.remove(); err != nil || o.remove() != nil {
		t.Errorf("remove: %v; want success, and again without a file", err)
	}
	if _, err := os.Stat(string(o)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
