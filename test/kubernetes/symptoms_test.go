package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

type symptom struct {
	// text is on the page, and shown where the page says so.
	text  string
	shown func(*testing.T) string
	// arise causes the symptom, and returns the remedy.
	arise func(*testing.T) (remedy func())
}

// nothing causes nothing, and needs no remedy: the text is the response to a command, or of an earlier log.
func nothing(*testing.T) func() { return func() {} }

// notQuoted is what the page has in place of texts that it does not quote.
var notQuoted = map[string]string{"pods.conflist": "the name of a CNI file", "the plugin's server is down": "STATUS of the plugin, with a code"}

// patient is a cluster in which the rows of the page are tried on one node.
type patient struct {
	*testbed
	n *node
}

// testSymptoms brings about rows of docs/troubleshooting.md, finds their texts where the page says that they are,
// and applies the remedies, after which everything must be well again. Rows that need no cluster are in TestTroubleshooting
// of the packages e2e and bridge.
func (tb *testbed) testSymptoms(t *testing.T) {
	tb.ensurePods(t)
	p := patient{tb, tb.nodes[0]}
	p.installShell(t)
	tb.tryAll(t, slices.Concat(p.notReady(), p.notRunning(), p.refusals(), p.addressProblems(), p.recordProblems(t), p.agentRefusals(), p.poolProblems()))
	tb.testSandboxErrors(t)
	tb.waitRecords(t, "after the symptoms")
}

func (tb *testbed) tryAll(t *testing.T, rows []symptom) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(tb.root, "docs/troubleshooting.md"))
	check.Must(t, err)
	for _, row := range rows {
		t.Run(row.text, func(t *testing.T) {
			if onPage := cmp.Or(notQuoted[row.text], "`"+row.text+"`"); !strings.Contains(string(page), onPage) {
				t.Errorf("the page does not have %s", onPage)
			}
			remedy := row.arise(t)
			var shown string
			err := cluster.Eventually(t.Context(), symptomTimeout, func() error {
				if shown = row.shown(t); !strings.Contains(shown, row.text) {
					return errors.New("the text is not shown")
				}
				return nil
			})
			if err != nil {
				t.Errorf("%v: %s", err, shown)
			}
			remedy()
			tb.waitHealthy(t, "the remedy to help")
			tb.waitRecords(t, "after the remedy")
		})
	}
}

// symptomTimeout is when a symptom is given up, so that its remedy is applied and the next one is tried. The
// bridge waits 5 minutes for an agent.
const symptomTimeout = 10 * time.Minute

const (
	pluginFile = "/opt/cni/bin/host-local" // only the daemon uses it in mode crd
	shellFile  = "/opt/cni/bin/busybox"
)

// installShell installs what interprets the plugins of pluginScript: the daemon's container has no shell.
func (p patient) installShell(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	check.Must(t, err)
	cluster.RunLines(t, "cp "+busybox+" "+p.n.path(shellFile))
	t.Cleanup(func() { _ = os.Remove(p.n.path(shellFile)) })
}

// pluginScript is a plugin that runs a command for a verb, and is host-local for all others.
func pluginScript(verb, command string) string {
	return "#!" + shellFile + " sh\n[ \"$CNI_COMMAND\" != " + verb + " ] || {\n" + command + "\n}\nexec " + pluginFile + ".away\n"
}

// replace moves a file of the node away, and writes another one unless the text is empty. It returns the way back.
func (p patient) replace(file, text string, mode os.FileMode) func(*testing.T) func() {
	return func(t *testing.T) func() {
		t.Helper()
		path := p.n.path(file)
		check.Must(t, os.Rename(path, path+".away"))
		if text != "" {
			check.Must(t, os.WriteFile(path, []byte(text), mode))
			check.Must(t, os.Chmod(path, mode))
		}
		return func() { check.Must(t, os.Rename(path+".away", path)) }
	}
}

// configure changes the node's CNI configuration while the program that renders it is stopped.
func (p patient) configure(change func(string) string) func(*testing.T) func() {
	return func(t *testing.T) func() {
		t.Helper()
		text, err := os.ReadFile(p.n.path(renderedFile))
		check.Must(t, err)
		network := p.n.signal(t, networkProgram(), syscall.SIGSTOP)
		back := p.replace(renderedFile, change(string(text)), 0o644)(t)
		return func() {
			back()
			check.Must(t, syscall.Kill(network, syscall.SIGCONT))
		}
	}
}

func (p patient) printed(args ...string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		args := append([]string{"--namespace", systemNamespace, "exec", p.daemonPod(t, p.n).Name, "--", "delegated-ipam"}, args...)
		out, _ := p.kubectl(t.Context(), args...) // a refusal is an error, too
		return out
	}
}

func (p patient) logged(t *testing.T) string {
	t.Helper()
	return p.mustKubectl(t, "--namespace", systemNamespace, "logs", p.daemonPod(t, p.n).Name)
}

func (p patient) found(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile("(?m)^ok .*$").ReplaceAllString(p.printed("doctor")(t), "")
}

// restart deletes the daemon's pod, as the page says: a container that ends often waits for the kubelet.
func (p patient) restart(t *testing.T) {
	t.Helper()
	p.mustKubectl(t, "--namespace", systemNamespace, "delete", "pod", p.daemonPod(t, p.n).Name)
	cluster.MustEventually(t, "the next daemon to start", convergeTimeout, func() error {
		_, err := p.n.find(daemonProgram())
		return err
	})
}

func (p patient) notReady() []symptom {
	status := p.printed("status")
	with := func(old, changed string) func(*testing.T) func() {
		return p.configure(func(text string) string { return strings.Replace(text, old, changed, 1) })
	}
	script := func(verb, command string) func(*testing.T) func() {
		return p.replace(pluginFile, pluginScript(verb, command), 0o755)
	}
	return []symptom{
		{"pods.conflist", status, p.configure(func(string) string { return "{" })},
		{"permission denied", status, p.replace(pluginFile, "x", 0o600)},
		{"exec format error", status, p.replace(pluginFile, "x", 0o755)},
		{"did not end within", status, script("STATUS", "exec "+shellFile+" sleep 1000")},
		{"the plugin's server is down", status, script("STATUS", `echo '{"cniVersion":"1.1.0","code":50,"msg":"the plugin'"'"'s server is down"}'; exit 1`)},
		{"which is on this container's own file system", status, with(`"host-local"`, `"host-local", "dataDir": "/var/lib/elsewhere"`)},
		{"journal.db: ", status, func(t *testing.T) func() {
			file := p.n.path(daemonState + "/journal.db")
			cluster.RunLines(t, "chattr +i "+file)
			p.printed("allocate", "ciliumnode-symptom")(t)
			return func() { cluster.RunLines(t, "chattr -i "+file) }
		}},
	}
}

func (p patient) notRunning() []symptom {
	// refused starts another daemon in the container, with an invalid option.
	refused := func(t *testing.T) string {
		t.Helper()
		pid, err := p.n.find(daemonProgram())
		check.Must(t, err)
		enter := []string{"K8S_NODE_NAME=" + p.n.name, "timeout", "4", "nsenter", "--mount", "--net", "--pid", "--target", strconv.Itoa(pid), "--"}
		out, _ := cluster.Run(exec.CommandContext(t.Context(), "env", slices.Concat(enter, argsOf(t, pid), []string{"--verify-interval=soon"})...))
		return out
	}
	return []symptom{{"Error: --", refused, nothing}}
}

// argsOf returns the arguments of a process; the first is the program's path in its container.
func argsOf(t *testing.T, pid int) []string {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	check.Must(t, err)
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	args[0], err = os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	check.Must(t, err)
	return args
}

func (p patient) refusals() []symptom {
	socket := p.n.path(daemonSocket)
	byAnotherUser := func(t *testing.T) string {
		t.Helper()
		pid, err := p.n.find(daemonProgram())
		check.Must(t, err)
		out, _ := cluster.Run(exec.CommandContext(t.Context(), "nsenter", "--setuid=4242", "--setgid=4242", "--mount", "--target", strconv.Itoa(pid), "--", argsOf(t, pid)[0], "list"))
		return out
	}
	return []symptom{
		{"permission denied", byAnotherUser, nothing},
		{"may not call: expected one that --allow-uids", byAnotherUser, func(t *testing.T) func() {
			check.Must(t, os.Chmod(socket, 0o666))
			return func() { check.Must(t, os.Chmod(socket, 0o660)) }
		}},
		{"Retry-After", func(t *testing.T) string {
			const requests = `for n in $(seq 30); do curl --silent --include --unix-socket "$0" -X POST "http://localhost/v1/ipam?owner=ciliumnode-symptom-$n" & done; wait`
			out, _ := p.n.command(t.Context(), "sh", "-c", requests, daemonSocket)
			return out
		}, func(t *testing.T) func() {
			back := p.replace(pluginFile, pluginScript("ADD", "exec "+shellFile+" sleep 1000"), 0o755)(t)
			return func() {
				back()
				p.releaseOwn(t)
			}
		}},
	}
}

func (p patient) releaseOwn(t *testing.T) {
	t.Helper()
	cluster.MustEventually(t, "the owners of the symptoms to be released", convergeTimeout, func() error {
		all, err := p.n.attachments()
		for _, a := range all {
			if !strings.HasPrefix(a.Owner, "ciliumnode-symptom") {
				continue
			}
			for _, address := range a.Addresses {
				p.printed("release", address.IP.String())(t)
			}
			err = errors.Join(err, fmt.Errorf("%s is %s", a.Owner, a.State))
		}
		return err
	})
}

// testSandboxErrors makes pods stay in ContainerCreating. The kubelet's Event has the text of a row of
// the page, and the remedy of the row lets the pod start.
func (tb *testbed) testSandboxErrors(t *testing.T) {
	n := tb.nodes[0]

	agent := n.signal(t, daemon("cilium-agent"), syscall.SIGSTOP)
	tb.createPodOn(t, n, "without-agent")
	tb.waitSandboxError(t, "without-agent", "unable to connect to Cilium agent")
	check.Must(t, syscall.Kill(agent, syscall.SIGCONT))
	tb.waitPodOn(t, n, "without-agent")
	tb.waitHealthy(t, "the agent to continue")

	back := tb.bridgeFlags(t, fewSlots...) // fewer than the node needs: no slot is free
	tb.waitHealthy(t, "the bridge to have another limit")
	cluster.MustEventually(t, "the bridge to release the free addresses", convergeTimeout, func() error {
		state, err := tb.nodeState(t.Context(), n)
		if free := len(state.Pool) - len(state.Used); err == nil && free > 0 {
			err = fmt.Errorf("%d addresses are free", free)
		}
		return err
	})
	tb.createPodOn(t, n, "without-address")
	tb.waitSandboxError(t, "without-address", "no IPs currently available on the node")
	back()
	tb.waitPodOn(t, n, "without-address")
	tb.waitHealthy(t, "the bridge to have its limit again")
}

// testPodsSymptoms does that with pods that get their addresses through the daemon.
func (tb *testbed) testPodsSymptoms(t *testing.T) {
	p := patient{tb, tb.nodes[0]}
	const waiting = "Waiting for the delegated IPAM server to become ready" // at the agent's first start
	tb.tryAll(t, []symptom{{waiting, p.agentLog, nothing}})

	daemon := p.n.signal(t, daemonProgram(), syscall.SIGSTOP)
	tb.createPodOn(t, p.n, "without-daemon")
	tb.waitSandboxError(t, "without-daemon", "the daemon at")
	_ = syscall.Kill(daemon, syscall.SIGCONT) // unless the kubelet has replaced it
	tb.waitPodOn(t, p.n, "without-daemon")

	written := p.fillRange(t)
	tb.createPodOn(t, p.n, "without-address")
	tb.waitSandboxError(t, "without-address", "no IP addresses available in range set")
	for _, file := range written {
		check.Must(t, os.Remove(file))
	}
	tb.waitPodOn(t, p.n, "without-address")
	tb.waitHealthy(t, "the daemon to have addresses")
	tb.waitLeft(t, "the pods to be deleted", 0)
	tb.waitRecords(t, "after the symptoms")
}

// waitSandboxError waits for an Event of the kubelet about a pod, with a text that the page has.
func (tb *testbed) waitSandboxError(t *testing.T, pod, text string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(tb.root, "docs/troubleshooting.md"))
	check.Must(t, err)
	if !strings.Contains(string(page), "`"+text+"`") {
		t.Errorf("the page does not have the text %q", text)
	}
	cluster.MustEventually(t, "an Event with "+text, convergeTimeout, func() error {
		events, err := listOf[corev1.Event](t.Context(), tb.Resource("", "v1", "events").Namespace(podNamespace),
			metav1.ListOptions{FieldSelector: "reason=FailedCreatePodSandBox,involvedObject.name=" + pod})
		if err == nil && !slices.ContainsFunc(events, func(e corev1.Event) bool { return strings.Contains(e.Message, text) }) {
			err = fmt.Errorf("%d Events have another text", len(events))
		}
		return err
	})
}

// otherLease is the lease of a container that is not the daemon's.
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

func (p patient) fillRange(t *testing.T) (files []string) {
	t.Helper()
	files = p.unleased(t)
	for _, file := range files {
		check.Must(t, os.WriteFile(file, []byte(otherLease), 0o644))
	}
	return files
}

func (p patient) addressProblems() []symptom {
	return []symptom{
		{"lost", p.printed("list"), func(t *testing.T) func() {
			file := p.leaseFile(p.freeSlot(t).Addresses[0].IP)
			check.Must(t, os.WriteFile(file, []byte(otherLease), 0o644))
			p.restart(t)
			return func() { check.Must(t, os.Remove(file)) }
		}},
		{"Duplicate address from the plugin", p.logged, func(t *testing.T) func() {
			back := p.configure(func(text string) string {
				return strings.Replace(text, `"host-local"`, `"host-local", "dataDir": "`+leaseDir+`/second"`, 1)
			})(t)
			cluster.MustEventually(t, "the daemon to read the configuration", convergeTimeout, func() error {
				if out := p.printed("doctor")(t); !strings.Contains(out, leaseDir+"/second") {
					return fmt.Errorf("doctor prints %s", out)
				}
				return nil
			})
			p.printed("allocate", "ciliumnode-symptom")(t)
			return func() {
				back()
				check.Must(t, os.RemoveAll(p.n.path(leaseDir+"/second")))
				p.releaseOwn(t)
			}
		}},
	}
}

// foreignJournal returns the journal of another machine.
func foreignJournal(t *testing.T) []byte {
	t.Helper()
	at := filepath.Join(t.TempDir(), "state")
	dir, err := statedir.Lock(t.Context(), at, statedir.Holder{}, nil)
	check.Must(t, err)
	j := journal.Open(dir, journal.Options{Metadata: journal.Metadata{MachineID: "0123456789abcdef", Node: "other"}})
	_, err = j.Load()
	j.Close()
	check.Must(t, errors.Join(err, dir.Close()))
	data, err := os.ReadFile(filepath.Join(at, journal.Files[0]))
	check.Must(t, err)
	return data
}

func (p patient) recordProblems(t *testing.T) []symptom {
	status, foreign := p.printed("status"), foreignJournal(t)
	// damage changes the journal, which the next daemon reads.
	damage := func(text string, change func(data []byte) []byte) symptom {
		return symptom{text, status, func(t *testing.T) func() {
			file := p.n.path(daemonState + "/journal.db")
			data, err := os.ReadFile(file)
			check.Must(t, err)
			check.Must(t, os.WriteFile(file, change(data), 0o600))
			p.restart(t)
			return func() {
				removed, err := filepath.Glob(p.n.path(daemonState) + "/quarantine/*")
				check.Must(t, err)
				for _, name := range removed {
					check.Must(t, os.Remove(name))
				}
				p.restart(t)
			}
		}}
	}
	return []symptom{
		damage("written on another machine", func([]byte) []byte { return foreign }),
		damage("damaged", func(data []byte) []byte { return data[:5000] }),
		{"leases", p.found, func(t *testing.T) func() {
			a := p.freeSlot(t)
			check.Must(t, os.Remove(p.leaseFile(a.Addresses[0].IP)))
			return func() { p.restart(t) } // it verifies; otherwise after --verify-interval
		}},
		{"stale-lease-files", p.found, func(t *testing.T) func() {
			check.Must(t, os.WriteFile(p.unleased(t)[0], nil, 0o644))
			return func() { p.printed("doctor", "--repair")(t) }
		}},
	}
}

func (p patient) poolProblems() []symptom {
	var began time.Time
	logged := func(t *testing.T) string {
		t.Helper()
		pod := strings.TrimSpace(p.mustKubectl(t, "--namespace", systemNamespace, "get", "pods", "--selector=app.kubernetes.io/name=delegated-ipam-bridge", "--field-selector=spec.nodeName="+p.n.name, "--output=name"))
		out, _ := p.kubectl(t.Context(), "--namespace", systemNamespace, "logs", pod, "--since-time="+began.Format(time.RFC3339)) // it may be starting
		return out
	}
	rows := []symptom{
		{"NotPermitted", logged, func(t *testing.T) func() {
			p.mustKubectl(t, "delete", "clusterrolebinding", "delegated-ipam-bridge")
			p.printed("release", p.freeSlot(t).Addresses[0].IP.String())(t) // the bridge must withdraw it
			return func() { p.apply(t, p.manifests(t)) }
		}},
		{"AgentNotResponding", logged, func(t *testing.T) func() {
			agent := p.n.signal(t, daemon("cilium-agent"), syscall.SIGSTOP)
			back := p.bridgeFlags(t, fewSlots...)
			return func() {
				check.Must(t, syscall.Kill(agent, syscall.SIGCONT))
				back()
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
	check.Must(t, err)
	return string(log)
}

func (p patient) agentRefusals() []symptom {
	return []symptom{
		{"Waiting for IPs to become available in CRD-backed allocation pool", p.agentLog, nothing}, // at its first start
		{"must be disabled with --ipam=delegated-plugin", func(t *testing.T) string {
			command := append([]string{"timeout", "30", filepath.Join(p.agentDir, "bin", p.agent)}, p.allAgentFlags()...)
			out, _ := p.n.command(t.Context(), append(command, "--lib-dir="+filepath.Join(p.agentDir, "lib"), "--ipam=delegated-plugin", "--local-router-ipv4=192.0.2.250")...)
			return out
		}, func(t *testing.T) func() { // it has removed the socket of the agent that runs
			return func() { p.n.signal(t, daemon("cilium-agent"), syscall.SIGKILL) }
		}},
	}
}
