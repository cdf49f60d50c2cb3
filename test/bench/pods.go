package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
)

const (
	// heldPods is the number of leases of other pods in both stores.
	heldPods = 9
	// slowADD is the time that the plugin of slowPods takes besides its own.
	slowADD = 200 * time.Millisecond

	floorName = "the bare plugin after a process that does nothing: "
)

// runPlugin runs one verb of a CNI plugin as a minimal program would, and returns its output.
func runPlugin(path, verb, container, args string, config map[string]any) []byte {
	cmd := exec.Command(path)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=/var/run/netns/none",
		"CNI_ARGS=IgnoreUnknown=1" + args, "CNI_PATH=" + filepath.Dir(path),
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(must(json.Marshal(config))), &out, &out
	if err := cmd.Run(); err != nil {
		failIf(fmt.Errorf("%s %s: %w: %s", path, verb, err, out.Bytes()))
	}
	return out.Bytes()
}

func pluginConfig(version string, ipam map[string]any) map[string]any {
	return map[string]any{"cniVersion": version, "name": network, "type": "cilium-cni", "ipam": ipam}
}

// bare runs host-local: the same verbs with the same input as the daemon, without durable writes
// and checks.
type bare struct {
	path   string
	config map[string]any
}

// newBare returns the plugin over a separate store.
func newBare(plugins, store string) bare {
	return bare{filepath.Join(plugins, "host-local"), pluginConfig("1.1.0", ipamSection(store))}
}

func (b bare) run(verb, owner string, config map[string]any) []byte {
	return runPlugin(b.path, verb, containerid.For(owner, nodeName, network), "", config)
}

// acquire runs DEL and ADD and returns the result and their time.
func (b bare) acquire(owner string) (result []byte, took time.Duration) {
	took = timed(func() {
		b.run("DEL", owner, b.config)
		result = b.run("ADD", owner, b.config)
	})
	return result, took
}

// with runs a verb with the result of the ADD, as the daemon does.
func (b bare) with(verb, owner string, result []byte) time.Duration {
	config := maps.Clone(b.config)
	config["prevResult"] = json.RawMessage(result)
	return timed(func() { b.run(verb, owner, config) })
}

// pod calls a CNI plugin for pods, as cilium-cni does.
type pod struct {
	plugin string
	config map[string]any
	// before is a program whose VERSION runs before each call; empty for none.
	before string
}

// call runs a verb for a container and measures the time.
func (p pod) call(verb, container string) time.Duration {
	args := ";K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + container
	return timed(func() {
		if p.before != "" {
			runPlugin(p.before, "VERSION", container, args, p.config)
		}
		runPlugin(p.plugin, verb, container, args, p.config)
	})
}

// withPods runs work with pods through the daemon of a new node, and with pods of the bare plugin over
// a separate store; plugins is the directory of host-local. Each has a number of leases.
func (b *bench) withPods(name, plugins string, held int, work func(ours, reference pod)) {
	o := b.options
	o.plugins = plugins
	n, s, ours := o.podNode(name)
	defer s.stop()
	withHeld(held, work, ours, barePod(plugins, n.store()+"-bare"))
}

// withFloor runs work with pods of the bare plugin, before each call of which the CNI plugin starts and does
// nothing, and with pods of the bare plugin: no daemon that the CNI plugin calls can cost less.
func (b *bench) withFloor(name string, work func(ours, reference pod)) {
	store := filepath.Join(b.dir, name)
	floor := barePod(b.plugins, store)
	floor.before = b.cni
	withHeld(heldPods, work, floor, barePod(b.plugins, store+"-bare"))
}

func barePod(plugins, store string) pod {
	return pod{plugin: filepath.Join(plugins, "host-local"), config: pluginConfig("1.0.0", ipamSection(store))}
}

// withHeld adds leases to both, and runs work.
func withHeld(held int, work func(ours, reference pod), ours, reference pod) {
	for i := range held {
		for _, p := range []pod{ours, reference} {
			p.call("ADD", fmt.Sprintf("held-%d", i))
		}
	}
	work(ours, reference)
}

// podNode starts a daemon on a new node whose pods get their addresses through it.
func (o options) podNode(name string, flags ...string) (*node, *server, pod) {
	n, socket := o.newNode(name), newSocket()
	through := map[string]any{"type": filepath.Base(o.cni), "socket": socket, "delegate": ipamSection(n.store())}
	n.writeNetwork(through)
	return n, n.daemonAt(socket, flags...), pod{plugin: o.cni, config: pluginConfig("1.0.0", through)}
}

// eachPod returns work that measures the ADD and the DEL of one pod after the other.
func eachPod(pairs int, add, del *comparison) func(ours, reference pod) {
	turn := func(p pod) func() []float64 {
		i := 0
		return func() []float64 {
			i++ // a container ID is never used again
			container := fmt.Sprintf("pod-%d", i)
			return []float64{ms(p.call("ADD", container)), ms(p.call("DEL", container))}
		}
	}
	return func(ours, reference pod) { alternate(pairs, turn(ours), turn(reference), add, del) }
}

// pods measures pods through the daemon beside the bare plugin.
func (b *bench) pods() {
	var add, addMany, del, floorADD, floorDEL comparison
	b.withPods("pods", b.plugins, heldPods, eachPod(b.pairs, &add, &del))
	b.withPods("pods-1000", b.plugins, 999, eachPod(max(b.pairs/5, 5), &addMany, &comparison{}))
	b.withFloor("pods-floor", eachPod(b.pairs, &floorADD, &floorDEL))
	b.report.add(
		compared("pod through the daemon: ADD, 10 leases", "bare ADD", add, atMost(1.15)),
		compared("pod through the daemon: ADD, 1,000 leases", "bare ADD", addMany, atMost(0.25)),
		compared(floorName+"ADD, 10 leases", "bare ADD", floorADD, reportOnly()),
		compared("pod through the daemon: DEL, 10 leases", "bare DEL", del, atMost(1.25)),
		compared(floorName+"DEL, 10 leases", "bare DEL", floorDEL, reportOnly()),
	)
}

// slowPods is pods with a plugin whose ADD and DEL take 200 ms longer.
func (b *bench) slowPods() {
	dir, _ := b.slowPlugin(slowADD)
	var add comparison
	b.withPods("slow-pods", dir, heldPods, eachPod(max(b.pairs/10, 5), &add, &comparison{}))
	b.report.add(compared("pod through the daemon: ADD, plugin of 200 ms", "bare ADD", add, atMost(1.05)))
}

// manyPods measures the ADDs per second of concurrent pods. Their DELs are not in the time.
func (b *bench) manyPods() {
	var adds, floor comparison
	b.withPods("many-pods", b.plugins, heldPods, podsAtOnce(max(b.pairs/10, 5), &adds))
	b.withFloor("many-pods-floor", podsAtOnce(max(b.pairs/10, 5), &floor))
	ours := compared("pods through the daemon: ADD, 8 at a time", "bare ADD, 8 workers", adds, atLeast(1.20))
	least := compared(floorName+"ADD, 8 at a time", "bare ADD, 8 workers", floor, reportOnly())
	ours.Unit, least.Unit = "ADDs/s", "ADDs/s"
	b.report.add(ours, least)
}

// podsAtOnce returns work that measures the ADDs per second of concurrent pods.
func podsAtOnce(pairs int, adds *comparison) func(ours, reference pod) {
	turn := func(p pod) func() []float64 {
		run := 0
		return func() []float64 {
			run++
			all := func(verb string) func(i, j int) {
				return func(i, j int) { p.call(verb, fmt.Sprintf("pod-%d-%d-%d", run, i, j)) }
			}
			rate := perSecond(all("ADD"))()
			atOnce(all("DEL"))
			return rate
		}
	}
	return func(ours, reference pod) { alternate(pairs, turn(ours), turn(reference), adds) }
}

// startCNI measures the start of the CNI plugin: VERSION does nothing else.
func (b *bench) startCNI() {
	var c comparison
	turn := func(plugin string) func() []float64 {
		return func() []float64 { return []float64{ms(pod{plugin: plugin}.call("VERSION", "none"))} }
	}
	alternate(b.pairs, turn(b.cni), turn(filepath.Join(b.plugins, "host-local")), &c)
	b.report.add(compared("start of delegated-ipam-cni (VERSION)", "host-local VERSION", c, atMost(1.3)))
}

// podMemory measures how much a lease of a pod adds to the resident memory of an idle daemon that was
// started with it.
func (b *bench) podMemory() {
	var sizes [2]float64
	for i, count := range []int{fewRecords, manyRecords} {
		n, s, p := b.podNode(fmt.Sprintf("pod-memory-%d", count))
		err := catch(func() {
			for c := range count {
				p.call("ADD", fmt.Sprintf("pod-%d", c))
			}
		})
		failIf(errors.Join(err, catch(s.stop)))
		sizes[i] = n.residentWhenIdle()
	}
	each := (sizes[1] - sizes[0]) * 1024 / (manyRecords - fewRecords)
	b.report.add(single("resident memory of each lease of a pod, of 1,000", "KiB", each, below(4)))
}
