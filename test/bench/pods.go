package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
)

const (
	// heldPods is the number of leases of other pods in both stores.
	heldPods = 9

	floorName = "the bare plugin after a process that does nothing: "
)

// pod calls a CNI plugin for pods, as cilium-cni does.
type pod struct {
	plugin string
	config map[string]any
	// before is a program whose VERSION runs before each call; empty for none.
	before string
}

func newPod(plugin string, ipam map[string]any) pod {
	return pod{plugin: plugin, config: map[string]any{"cniVersion": "1.0.0", "name": network, "type": "cilium-cni", "ipam": ipam}}
}

// barePod returns the pods of host-local over a store: without durable writes and checks.
func barePod(plugins, store string) pod {
	return newPod(filepath.Join(plugins, "host-local"), ipamSection(store))
}

// run runs a verb for a container, with the result of its ADD unless that is nil, and returns the output.
func (p pod) run(verb, container string, result json.RawMessage) []byte {
	if p.before != "" {
		pod{plugin: p.before, config: p.config}.run("VERSION", container, nil)
	}
	config := maps.Clone(p.config)
	if result != nil {
		config["prevResult"] = result
	}
	cmd := exec.Command(p.plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=/var/run/netns/none",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + container, "CNI_PATH=" + filepath.Dir(p.plugin),
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(must(json.Marshal(config))), &out, &out
	if err := cmd.Run(); err != nil {
		failIf(fmt.Errorf("%s %s: %w: %s", p.plugin, verb, err, out.Bytes()))
	}
	return out.Bytes()
}

// acquire runs DEL and ADD, as the daemon does for a new owner, and returns the result.
func (p pod) acquire(container string) []byte {
	p.run("DEL", container, nil)
	return p.run("ADD", container, nil)
}

// call runs a verb for a container, and returns the time in ms.
func (p pod) call(verb, container string) float64 {
	return timed(func() { p.run(verb, container, nil) })
}

// podNode starts a daemon on a new node whose pods get their addresses through it; plugins is the directory
// of host-local.
func (b *bench) podNode(name, plugins string, flags ...string) (*node, *server, pod) {
	n, socket := b.newNode(name), newSocket()
	n.plugins = plugins
	through := map[string]any{"type": filepath.Base(b.cni), "socket": socket, "delegate": ipamSection(n.store())}
	n.writeNetwork(through)
	return n, n.daemonAt(socket, flags...), newPod(b.cni, through)
}

// comparePods measures pods through the daemon of a new node, and pods of the bare plugin over a separate
// store. Each has a number of leases. A turn is a run of the pods.
func (b *bench) comparePods(name, plugins string, held, pairs int, turn func(pod) func() []float64) []comparison {
	n, s, ours := b.podNode(name, plugins)
	defer s.stop()
	return alternatePods(ours, barePod(plugins, n.store()+"-bare"), held, pairs, turn)
}

// compareFloor measures pods of the bare plugin, before each call of which the CNI plugin starts and does
// nothing, and pods of the bare plugin: no daemon that the CNI plugin calls can cost less.
func (b *bench) compareFloor(name string, pairs int, turn func(pod) func() []float64) []comparison {
	store := filepath.Join(b.dir, name)
	floor := barePod(b.plugins, store)
	floor.before = b.cni
	return alternatePods(floor, barePod(b.plugins, store+"-bare"), heldPods, pairs, turn)
}

func alternatePods(ours, reference pod, held, pairs int, turn func(pod) func() []float64) []comparison {
	for i := range held {
		for _, p := range []pod{ours, reference} {
			p.call("ADD", fmt.Sprintf("held-%d", i))
		}
	}
	return alternate(pairs, turn(ours), turn(reference))
}

// onePod returns a run that measures the ADD and the DEL of a pod.
func onePod(p pod) func() []float64 {
	i := 0
	return func() []float64 {
		i++ // a container ID is never used again
		container := fmt.Sprintf("pod-%d", i)
		return []float64{p.call("ADD", container), p.call("DEL", container)}
	}
}

// pods measures pods through the daemon beside the bare plugin.
func (b *bench) pods() {
	few := b.comparePods("pods", b.plugins, heldPods, b.pairs, onePod)
	many := b.comparePods("pods-1000", b.plugins, 999, max(b.pairs/5, 5), onePod)
	floor := b.compareFloor("pods-floor", b.pairs, onePod)
	b.add(
		compared("pod through the daemon: ADD, 10 leases", "bare ADD", few[0], "ratio <= 1.15"),
		compared("pod through the daemon: ADD, 1,000 leases", "bare ADD", many[0], "ratio <= 0.25"),
		compared(floorName+"ADD, 10 leases", "bare ADD", floor[0], "report"),
		compared("pod through the daemon: DEL, 10 leases", "bare DEL", few[1], "ratio <= 1.25"),
		compared(floorName+"DEL, 10 leases", "bare DEL", floor[1], "report"),
	)
}

// slowPods is pods with a plugin whose ADD and DEL take 200 ms longer.
func (b *bench) slowPods() {
	slow := b.comparePods("slow-pods", b.slowPlugin(200), heldPods, max(b.pairs/10, 5), onePod)
	b.add(compared("pod through the daemon: ADD, plugin of 200 ms", "bare ADD", slow[0], "ratio <= 1.05"))
}

// manyPods measures the ADDs per second of concurrent pods. Their DELs are not in the time.
func (b *bench) manyPods() {
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
	pairs := max(b.pairs/10, 5)
	ours, floor := b.comparePods("many-pods", b.plugins, heldPods, pairs, turn), b.compareFloor("many-pods-floor", pairs, turn)
	b.add(
		row{"pods through the daemon: ADD, 8 at a time", "bare ADD, 8 workers", "ADDs/s", ours[0], "ratio >= 1.20"},
		row{floorName + "ADD, 8 at a time", "bare ADD, 8 workers", "ADDs/s", floor[0], "report"},
	)
}

// startCNI measures the start of the CNI plugin: VERSION does nothing else.
func (b *bench) startCNI() {
	turn := func(p pod) func() []float64 {
		return func() []float64 { return []float64{p.call("VERSION", "none")} }
	}
	c := alternatePods(pod{plugin: b.cni}, barePod(b.plugins, ""), 0, b.pairs, turn)
	b.add(compared("start of delegated-ipam-cni (VERSION)", "host-local VERSION", c[0], "ratio <= 1.30"))
}

// podMemory measures how much a lease of a pod adds to the resident memory of an idle daemon that was
// started with it.
func (b *bench) podMemory() {
	resident := func(count int) float64 {
		n, s, p := b.podNode(fmt.Sprintf("pod-memory-%d", count), b.plugins)
		func() {
			defer s.stop()
			for c := range count {
				p.call("ADD", fmt.Sprintf("pod-%d", c))
			}
		}()
		return n.residentWhenIdle()
	}
	each := (resident(manyRecords) - resident(fewRecords)) * 1024 / (manyRecords - fewRecords)
	b.add(single("resident memory of each lease of a pod, of 1,000", "KiB", each, "<= 4"))
}
