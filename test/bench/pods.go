package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// heldPods is the number of leases of other pods in both stores.
	heldPods = 9
	// slowADD is the time that the plugin of slowPods takes besides its own.
	slowADD = 200 * time.Millisecond

	floorName = "the bare plugin after a process that does nothing: "
)

// pod calls a CNI plugin for pods, as cilium-cni does.
type pod struct {
	plugin string
	config []byte
	// before is a program whose VERSION runs before each call; empty for none.
	before string
}

func newPod(plugin string, ipam map[string]any) (pod, error) {
	config, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": network, "type": "cilium-cni", "ipam": ipam})
	return pod{plugin: plugin, config: config}, err
}

// call runs a verb for a container and measures the time.
func (p pod) call(verb, container string) (time.Duration, error) {
	return timed(func() error {
		if p.before != "" {
			if err := p.run(p.before, "VERSION", container); err != nil {
				return err
			}
		}
		return p.run(p.plugin, verb, container)
	})
}

func (p pod) run(plugin, verb, container string) error {
	cmd := exec.Command(plugin)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=/var/run/netns/none",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + container, "CNI_PATH=" + filepath.Dir(plugin),
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(p.config), &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", plugin, verb, err, out.Bytes())
	}
	return nil
}

// withPods runs work with pods through the sidecar of a new node, and with pods of the bare plugin over
// a separate store; plugins is the directory of host-local. Each has heldPods leases.
func (b *bench) withPods(name, plugins string, work func(ours, reference pod) error) error {
	o := b.options
	o.plugins = plugins
	n, s, ours, err := o.podNode(name)
	if err != nil {
		return err
	}
	reference, err := barePod(plugins, n.store()+"-bare")
	if err == nil {
		err = withHeld(work, ours, reference)
	}
	return errors.Join(err, s.stop())
}

// withFloor runs work with pods of the bare plugin, before each call of which the CNI plugin starts and does
// nothing, and with pods of the bare plugin: no sidecar that the CNI plugin calls can cost less.
func (b *bench) withFloor(name string, work func(ours, reference pod) error) error {
	store := filepath.Join(b.dir, name)
	floor, err := barePod(b.plugins, store)
	if err != nil {
		return err
	}
	floor.before = b.cni
	reference, err := barePod(b.plugins, store+"-bare")
	if err != nil {
		return err
	}
	return withHeld(work, floor, reference)
}

func barePod(plugins, store string) (pod, error) {
	return newPod(filepath.Join(plugins, "host-local"), ipamSection(store))
}

// withHeld adds heldPods leases to both, and runs work.
func withHeld(work func(ours, reference pod) error, ours, reference pod) error {
	for i := range heldPods {
		for _, p := range []pod{ours, reference} {
			if _, err := p.call("ADD", fmt.Sprintf("held-%d", i)); err != nil {
				return err
			}
		}
	}
	return work(ours, reference)
}

// podNode starts a sidecar on a new node whose pods get their addresses through it.
func (o options) podNode(name string) (*node, *server, pod, error) {
	n, err := o.newNode(name)
	if err != nil {
		return nil, nil, pod{}, err
	}
	socket, err := newSocket()
	if err != nil {
		return nil, nil, pod{}, err
	}
	through := map[string]any{"type": filepath.Base(o.cni), "socket": socket, "delegate": ipamSection(n.store())}
	ours, err := newPod(o.cni, through)
	if err = errors.Join(err, n.writeNetwork(through)); err != nil {
		return nil, nil, pod{}, err
	}
	s, err := n.launchAt(socket)
	if err != nil {
		return nil, nil, pod{}, err
	}
	return n, s, ours, s.await(s.ready)
}

// eachPod returns work that measures the ADD and the DEL of one pod after the other.
func eachPod(pairs int, add, del *comparison) func(ours, reference pod) error {
	return func(ours, reference pod) error {
		turn := func(p pod, added, deleted *sample) func(bool) error {
			i := 0
			return func(counts bool) error {
				i++ // a container ID is never used again
				container := fmt.Sprintf("pod-%d", i)
				there, err := p.call("ADD", container)
				if err != nil {
					return err
				}
				back, err := p.call("DEL", container)
				if counts {
					added.add(there)
					deleted.add(back)
				}
				return err
			}
		}
		return alternate(pairs, turn(ours, &add.ours, &del.ours), turn(reference, &add.reference, &del.reference))
	}
}

// pods measures pods through the sidecar beside the bare plugin.
func (b *bench) pods() error {
	var add, del, floorADD, floorDEL comparison
	err := b.withPods("pods", b.plugins, eachPod(b.pairs, &add, &del))
	if err == nil {
		err = b.withFloor("pods-floor", eachPod(b.pairs, &floorADD, &floorDEL))
	}
	b.report.add(
		compared("pod through the sidecar: ADD, 10 leases", "bare ADD", add, atMost(2)),
		compared(floorName+"ADD, 10 leases", "bare ADD", floorADD, reportOnly()),
		compared("pod through the sidecar: DEL, 10 leases", "bare DEL", del, atMost(1.5)),
		compared(floorName+"DEL, 10 leases", "bare DEL", floorDEL, reportOnly()),
	)
	return err
}

// slowPods is pods with a plugin whose ADD and DEL take 200 ms longer.
func (b *bench) slowPods() error {
	dir := filepath.Join(b.dir, "slow-plugins")
	script := fmt.Sprintf("#!/bin/sh\n[ $CNI_COMMAND = VERSION ] || sleep %g\nexec %s/host-local\n", slowADD.Seconds(), b.plugins)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "host-local"), []byte(script), 0o755)
	}
	if err != nil {
		return err
	}
	var add comparison
	err = b.withPods("slow-pods", dir, eachPod(max(b.pairs/10, 5), &add, &comparison{}))
	b.report.add(compared("pod through the sidecar: ADD, plugin of 200 ms", "bare ADD", add, atMost(1.05)))
	return err
}

// manyPods measures the ADDs per second of concurrent pods. Their DELs are not in the time.
func (b *bench) manyPods() error {
	var adds, floor comparison
	err := b.withPods("many-pods", b.plugins, podsAtOnce(max(b.pairs/10, 5), &adds))
	if err == nil {
		err = b.withFloor("many-pods-floor", podsAtOnce(max(b.pairs/10, 5), &floor))
	}
	ours := compared("pods through the sidecar: ADD, 8 at a time", "bare ADD, 8 workers", adds, atLeast(0.60))
	least := compared(floorName+"ADD, 8 at a time", "bare ADD, 8 workers", floor, reportOnly())
	ours.Unit, least.Unit = "ADDs/s", "ADDs/s"
	b.report.add(ours, least)
	return err
}

// podsAtOnce returns work that measures the ADDs per second of concurrent pods.
func podsAtOnce(pairs int, adds *comparison) func(ours, reference pod) error {
	return func(ours, reference pod) error {
		turn := func(p pod, into *sample) func(bool) error {
			run := 0
			return func(counts bool) error {
				run++
				all := func(verb string) func() error {
					return func() error {
						var group errgroup.Group
						for i := range clients {
							group.Go(func() error {
								for j := range pairsPerClient {
									if _, err := p.call(verb, fmt.Sprintf("pod-%d-%d-%d", run, i, j)); err != nil {
										return err
									}
								}
								return nil
							})
						}
						return group.Wait()
					}
				}
				took, err := timed(all("ADD"))
				if counts {
					*into = append(*into, clients*pairsPerClient/took.Seconds())
				}
				return errors.Join(err, all("DEL")())
			}
		}
		return alternate(pairs, turn(ours, &adds.ours), turn(reference, &adds.reference))
	}
}

// startCNI measures the start of the CNI plugin: VERSION does nothing else.
func (b *bench) startCNI() error {
	var c comparison
	turn := func(plugin string, into *sample) func(bool) error {
		return func(counts bool) error {
			took, err := pod{plugin: plugin}.call("VERSION", "none")
			if counts {
				into.add(took)
			}
			return err
		}
	}
	err := alternate(b.pairs, turn(b.cni, &c.ours), turn(filepath.Join(b.plugins, "host-local"), &c.reference))
	b.report.add(compared("start of delegated-ipam-cni (VERSION)", "host-local VERSION", c, atMost(1.3)))
	return err
}

// podMemory measures how much a lease of a pod adds to the resident memory of an idle sidecar that was
// started with it.
func (b *bench) podMemory() error {
	var sizes [2]float64
	for i, count := range []int{fewRecords, manyRecords} {
		n, s, p, err := b.podNode(fmt.Sprintf("pod-memory-%d", count))
		if err != nil {
			return err
		}
		for c := range count {
			if err == nil {
				_, err = p.call("ADD", fmt.Sprintf("pod-%d", c))
			}
		}
		if err = errors.Join(err, s.stop()); err != nil {
			return err
		}
		if s, err = n.sidecar(); err != nil {
			return err
		}
		sizes[i], err = residentWhenIdle(s.cmd.Process.Pid)
		if err = errors.Join(err, s.stop()); err != nil {
			return err
		}
	}
	each := (sizes[1] - sizes[0]) * 1024 / (manyRecords - fewRecords)
	b.report.add(single("resident memory of each lease of a pod, of 1,000", "KiB", each, below(4)))
	return nil
}
