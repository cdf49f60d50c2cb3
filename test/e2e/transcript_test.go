package e2e

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

var update = flag.Bool("update", false, "update the transcripts in the documents")

// transcriptFile is the document with the transcripts.
const transcriptFile = "../../docs/reference/command-line.md"

// transcript matches the block of the transcripts.
var transcript = regexp.MustCompile("(?s)(## Example session\n.*?```console\n)(.*?)(```\n)")

func TestTranscripts(t *testing.T) {
	t.Parallel()
	n := nodeWith(t, harness.DualStack())
	s := n.Start(t, "--release-delay=1h")
	var shown strings.Builder
	run := func(args ...string) {
		out := n.Command(t, args...)
		if out.ExitCode != 0 || out.Stderr != "" {
			t.Fatalf("%q ended with status %d and printed %q", args, out.ExitCode, out.Stderr)
		}
		fmt.Fprintf(&shown, "$ delegated-ipam %s\n%s\n", strings.Join(args, " "), out.Stdout)
	}
	run("allocate", "router")
	run("allocate", "kube-system/coredns-1", "--family=ipv4", "--expiration")
	run("restore", "10.15.0.77", "ingress")
	run("release", "10.15.0.77")
	run("list")
	got := alignColumns(replaceVarying(n, s.List(t), strings.TrimSpace(shown.String())+"\n"))

	text, err := os.ReadFile(transcriptFile)
	check.Must(t, err)
	block := transcript.FindSubmatchIndex(text)
	if block == nil {
		t.Fatalf("%s has no block that matches %s", transcriptFile, transcript)
	}
	if *update {
		text = []byte(string(text[:block[4]]) + got + string(text[block[5]:]))
		check.Must(t, os.WriteFile(transcriptFile, text, 0o644))
		return
	}
	if want := string(text[block[4]:block[5]]); got != want {
		t.Errorf("a real run prints\n%s\nbut %s shows\n%s\n(update: go test ./test/e2e -run Transcripts -update)", got, transcriptFile, want)
	}
}

// replaceVarying replaces the paths and the name of the test's node by usual ones, and
// values that differ between runs.
func replaceVarying(n *harness.Node, list []harness.Attachment, text string) string {
	const node = "worker-1"
	replace := []string{
		n.Socket, "/var/run/delegated-ipam/ipam.sock", n.StateDir, "/var/lib/delegated-ipam", n.ConfDir, "/etc/cni/net.d",
		n.BinDir, "/opt/cni/bin", n.StoreDir, "/var/lib/cni/networks",
	}
	for _, a := range list {
		replace = append(replace, a.ContainerID, containerid.For(a.Owner, node, a.Network))
	}
	text = strings.NewReplacer(append(replace, n.Name, node)...).Replace(text)
	for _, r := range [][2]string{
		{`(Version: +|version=|daemon )\S+( not ready|\n)`, "${1}v0.1.0${2}"},
		{`\b(?:\d+m(?:\d+s)?|\d+s)\b`, "5s"},
		{`expires in \S+`, "expires in 9m55s"},
		{`returned in \S+`, "returned in 59m"},
		{`PID \d+`, "PID 4711"},
		{`on host \S+`, "on host worker-1"},
		{`as its user \d+`, "as its user 0"},
		{`group \d+`, "group 0"},
		{`\d+ MiB and \d+ inodes`, "45612 MiB and 3014912 inodes"},
		{`writable \(\w+\)`, "writable (ext4)"},
		{`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z`, "2026-03-01T12:00:00Z"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// alignColumns aligns the columns of each paragraph without lines that continue the one above.
func alignColumns(text string) string {
	var out strings.Builder
	columns := regexp.MustCompile(`(\S)   +`)
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		command, table, _ := strings.Cut(paragraph, "\n")
		if !strings.HasPrefix(command, "$") {
			command, table = "", paragraph
		}
		if command != "" {
			out.WriteString(command + "\n")
		}
		if strings.Contains(table, "\n   ") {
			out.WriteString(strings.TrimSuffix(table, "\n") + "\n\n")
			continue
		}
		w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(w, columns.ReplaceAllString(strings.TrimSuffix(table, "\n"), "$1\t"))
		w.Flush()
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}
