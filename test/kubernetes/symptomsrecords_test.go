package kubernetes

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// otherLease is the lease of a container that is not the sidecar's.
const otherLease = "0123456789abcdef\r\neth0"

// freeSlot returns an attachment of the bridge whose address the agent does not use, the last one. After a
// restart it waits until the bridge has requested each address again.
func (p patient) freeSlot(t *testing.T) (free harness.Attachment) {
	t.Helper()
	cluster.MustEventually(t, "a free slot", convergeTimeout, func() error {
		all, err := p.n.attachments()
		if err != nil {
			return err
		}
		state, err := p.nodeState(t.Context(), p.n)
		if err != nil {
			return err
		}
		for _, a := range all {
			if len(a.Addresses) > 0 && state.Used[a.Addresses[0].IP] == "" && a.State == "held" {
				free = a
			}
		}
		if free.Owner == "" || len(all) < len(state.Pool) {
			err = fmt.Errorf("%d of %d slots are held, %d used", len(all), len(state.Pool), len(state.Used))
		}
		return err
	})
	return free
}

func (p patient) leaseFile(ip netip.Addr) string {
	return p.n.path(filepath.Join(leaseDir, networkName, ip.String()))
}

// unleased returns the files of addresses that host-local has not leased, the last first.
func (p patient) unleased(t *testing.T) (files []string) {
	t.Helper()
	cidr := p.mustPodCIDRs(t, p.n)[0]
	for ip := cidr.Addr(); cidr.Contains(ip); ip = ip.Next() {
		if _, err := os.Stat(p.leaseFile(ip)); err != nil {
			files = append(files, p.leaseFile(ip))
		}
	}
	slices.Reverse(files)
	return files[1:] // without the broadcast address
}

// fillRange leases all free addresses to another container, and returns the files.
func (p patient) fillRange(t *testing.T) (files []string) {
	t.Helper()
	files = p.unleased(t)
	for _, file := range files {
		harness.Must(t, os.WriteFile(file, []byte(otherLease), 0o644))
	}
	return files
}

func (p patient) addressProblems() []symptom {
	return []symptom{
		{"lost", p.printed("list"), func(t *testing.T) func() {
			file := p.leaseFile(p.freeSlot(t).Addresses[0].IP)
			harness.Must(t, os.WriteFile(file, []byte(otherLease), 0o644))
			p.restart(t)
			return func() { harness.Must(t, os.Remove(file)) }
		}},
		{"Duplicate address from the plugin", p.logged, func(t *testing.T) func() {
			back := p.configure(func(text string) string {
				return strings.Replace(text, `"host-local"`, `"host-local", "dataDir": "`+leaseDir+`/second"`, 1)
			})(t)
			cluster.MustEventually(t, "the sidecar to read the configuration", convergeTimeout, func() error {
				if out := p.printed("doctor")(t); !strings.Contains(out, leaseDir+"/second") {
					return fmt.Errorf("doctor prints %s", out)
				}
				return nil
			})
			p.printed("allocate", "ciliumnode-symptom")(t)
			return func() {
				back()
				harness.Must(t, os.RemoveAll(p.n.path(leaseDir+"/second")))
				p.releaseOwn(t)
			}
		}},
		{"releasing", p.printed("list"), func(t *testing.T) func() {
			a := p.freeSlot(t)
			back := p.replace(pluginFile, pluginScript("DEL", `echo '{"cniVersion":"1.0.0","code":11,"msg":"try again later"}'; exit 1`), 0o755)(t)
			p.printed("release", a.Addresses[0].IP.String())(t)
			return func() {
				back()
				p.printed("release", a.Addresses[0].IP.String())(t)
			}
		}},
	}
}

func (p patient) recordProblems() []symptom {
	status := p.printed("status")
	// damage changes the record of a free slot, which the next sidecar reads.
	damage := func(text string, change func(text string) string) symptom {
		return symptom{text, status, func(t *testing.T) func() {
			names, err := filepath.Glob(p.n.path(sidecarState) + "/attachments/" + p.freeSlot(t).ContainerID + "*")
			harness.Must(t, err)
			was, err := os.ReadFile(names[0])
			harness.Must(t, err)
			harness.Must(t, os.WriteFile(names[0], []byte(change(string(was))), 0o600))
			p.restart(t)
			return func() {
				removed, err := filepath.Glob(p.n.path(sidecarState) + "/quarantine/*")
				harness.Must(t, err)
				for _, name := range removed {
					harness.Must(t, os.Remove(name))
				}
				if len(removed) == 0 {
					harness.Must(t, os.WriteFile(names[0], was, 0o600)) // what a newer version has written
				}
				p.restart(t)
			}
		}}
	}
	return []symptom{
		{"written on another machine", status, func(t *testing.T) func() {
			file := p.n.path("/etc/machine-id")
			was, err := os.ReadFile(file)
			harness.Must(t, err)
			harness.Must(t, os.WriteFile(file, []byte(strings.Repeat("0123456789abcdef", 2)+"\n"), 0o444))
			p.restart(t)
			return func() {
				harness.Must(t, os.WriteFile(file, was, 0o444))
				p.restart(t)
			}
		}},
		damage("empty file", func(string) string { return "" }),
		damage("not an envelope", func(text string) string { return text[:len(text)/2] }),
		damage("damaged", func(text string) string { return strings.Replace(text, "held", "hela", 1) }),
		damage("only a newer delegated-ipam understands", func(text string) string {
			return strings.Replace(text, `"version":`, `"version":9`, 1)
		}),
		{"leases", p.found, func(t *testing.T) func() {
			a := p.freeSlot(t)
			harness.Must(t, os.Remove(p.leaseFile(a.Addresses[0].IP)))
			return func() { p.restart(t) } // it verifies; otherwise after --verify-interval
		}},
		{"stale-lease-files", p.found, func(t *testing.T) func() {
			harness.Must(t, os.WriteFile(p.unleased(t)[0], nil, 0o644))
			return func() { p.printed("doctor", "--repair")(t) }
		}},
	}
}

// poolProblems are those that the bridge reports.
func (p patient) poolProblems() []symptom {
	var began time.Time
	logged := func(t *testing.T) string {
		t.Helper()
		pod := strings.TrimSpace(p.mustKubectl(t, "--namespace", systemNamespace, "get", "pods", "--selector=app.kubernetes.io/name=delegated-ipam-bridge", "--field-selector=spec.nodeName="+p.n.name, "--output=name"))
		out, _ := p.kubectl(t.Context(), "--namespace", systemNamespace, "logs", pod, "--since-time="+began.Format(time.RFC3339)) // it may be starting
		return out
	}
	patch := func(t *testing.T, patch string) {
		t.Helper()
		_, err := p.ciliumNodes().Patch(t.Context(), p.n.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		harness.Must(t, err)
	}
	rows := []symptom{
		{"SidecarUnavailable", logged, func(t *testing.T) func() {
			socket := p.n.path(sidecarSocket)
			harness.Must(t, os.Rename(socket, socket+".away"))
			patch(t, `{"metadata":{"labels":{"symptom":"sidecar"}}}`) // the bridge looks again
			return func() { harness.Must(t, os.Rename(socket+".away", socket)) }
		}},
		{"NotPermitted", logged, func(t *testing.T) func() {
			p.mustKubectl(t, "delete", "clusterrolebinding", "delegated-ipam-bridge")
			p.printed("release", p.freeSlot(t).Addresses[0].IP.String())(t) // the bridge must withdraw it
			return func() { p.apply(t, p.manifests(t)) }
		}},
		{"PoolExhausted", logged, func(t *testing.T) func() {
			written := p.fillRange(t)
			back := p.bridgeFlags(t, "--min-allocate=200", "--pre-allocate=8")
			return func() {
				for _, file := range written {
					harness.Must(t, os.Remove(file))
				}
				back()
			}
		}},
		{"AgentNotResponding", logged, func(t *testing.T) func() {
			agent := p.n.signal(t, daemon("cilium-agent"), syscall.SIGSTOP)
			back := p.bridgeFlags(t, fewSlots...)
			return func() {
				harness.Must(t, syscall.Kill(agent, syscall.SIGCONT))
				back()
			}
		}},
		{"WrongIPAMMode", logged, func(t *testing.T) func() {
			patch(t, `{"spec":{"ipam":{"podCIDRs":["192.0.2.0/24"]}}}`)
			return func() {
				harness.Must(t, p.ciliumNodes().Delete(t.Context(), p.n.name, metav1.DeleteOptions{}))
				p.n.signal(t, daemon("cilium-agent"), syscall.SIGKILL)
			}
		}},
	}
	for i, row := range rows {
		rows[i].arise = func(t *testing.T) func() {
			began = time.Now()
			return row.arise(t)
		}
	}
	return rows
}

// fewSlots are flags of the bridge with which it releases each free slot soon.
var fewSlots = []string{"--max-allocate=3", "--min-allocate=3", "--pre-allocate=1", "--excess-ip-release-delay=10s"}

// bridgeFlags adds flags to the bridge, and returns what removes them.
func (tb *testbed) bridgeFlags(t *testing.T, flags ...string) (back func()) {
	t.Helper()
	patch := func(operation string) {
		var steps []string
		for _, flag := range flags {
			steps = append(steps, fmt.Sprintf(`{"op":%q,"path":"/spec/template/spec/containers/0/args/0","value":%q}`, operation, flag))
		}
		tb.mustKubectl(t, "--namespace", systemNamespace, "patch", "daemonset", "delegated-ipam-bridge", "--type=json", "--patch", "["+strings.Join(steps, ",")+"]")
	}
	patch("add")
	return func() { patch("remove") }
}

func (p patient) agentLog(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(p.n.dir, "cilium-agent.log"))
	harness.Must(t, err)
	return string(log)
}

// agentRefusals are those of the agent's log.
func (p patient) agentRefusals() []symptom {
	return []symptom{
		{"Waiting for IPs to become available in CRD-backed allocation pool", p.agentLog, nothing}, // at its first start
		{"must be disabled with --ipam=delegated-plugin", func(t *testing.T) string {
			built := cluster.MustEnv(t, "CLUSTER_TEST_AGENT_DIR", "cluster-test")
			command := append([]string{"timeout", "30", filepath.Join(built, "bin", p.agent)}, p.allAgentFlags()...)
			out, _ := p.n.command(t.Context(), append(command, "--lib-dir="+filepath.Join(built, "lib"), "--ipam=delegated-plugin", "--local-router-ipv4=192.0.2.250")...)
			return out
		}, func(t *testing.T) func() { // it has removed the socket of the agent that runs
			return func() { p.n.signal(t, daemon("cilium-agent"), syscall.SIGKILL) }
		}},
	}
}
