package contract

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// TestMakeRunLines runs the curl lines that "make run" prints twice, in each of two runs.
func TestMakeRunLines(t *testing.T) {
	t.Parallel()
	requireCurl(t)
	n := harness.NewNode(t)
	failOnError(t, n.Dir)
	for range 2 {
		run, lines := makeRun(t, n)
		if len(lines) != 4 {
			t.Fatalf("make run prints the curl lines %q; want four", lines)
		}
		for range 2 {
			for i, text := range lines {
				runLine(t, n.Dir, line{file: "make run", number: i + 1, text: text})
			}
		}
		interrupt(t, run)
	}
}

func TestMakeRunTwice(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t)
	c := harness.Client{Socket: filepath.Join(n.Dir, runSocket)}
	run, _ := makeRun(t, n)
	before := c.Allocate(t, harness.Request{Owner: "demo"}).Addresses()
	interrupt(t, run)

	run, _ = makeRun(t, n)
	after := c.Allocate(t, harness.Request{Owner: "demo"}).Addresses()
	interrupt(t, run)
	if len(before) != 2 || strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("the first run gave %q, the second %q; want the same two", before, after)
	}
}

// makeRun starts tools/run.sh in the directory of the node, as "make run" does in the repository,
// waits until the sidecar is ready and returns the printed curl lines.
func makeRun(t *testing.T, n *harness.Node) (*exec.Cmd, []string) {
	t.Helper()
	script, err := filepath.Abs("../../../tools/run.sh")
	harness.Must(t, err)
	output, err := os.Create(filepath.Join(n.Dir, "output"))
	harness.Must(t, err)
	defer output.Close()
	cmd := exec.Command(script, harness.Binary(t), n.BinDir)
	cmd.Dir = n.Dir
	cmd.Stdout, cmd.Stderr = output, output
	harness.Must(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			interrupt(t, cmd)
		}
	})
	harness.Eventually(t, "make run to become ready", harness.Client{Socket: filepath.Join(n.Dir, runSocket)}.Ready)
	return cmd, printedCurlLines(t, output.Name())
}

func printedCurlLines(t *testing.T, output string) []string {
	t.Helper()
	f, err := os.Open(output)
	harness.Must(t, err)
	defer f.Close()
	var lines []string
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if text := strings.TrimSpace(scan.Text()); strings.HasPrefix(text, "curl ") {
			lines = append(lines, text)
		}
	}
	return lines
}

// interrupt sends the signal of Ctrl-C and waits for the exit.
func interrupt(t *testing.T, run *exec.Cmd) {
	t.Helper()
	harness.Must(t, run.Process.Signal(syscall.SIGINT))
	if err := run.Wait(); err != nil {
		t.Errorf("after SIGINT: %v; want exit status 0", err)
	}
}
