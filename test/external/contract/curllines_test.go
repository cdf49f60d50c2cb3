package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

const documentation = "../../.."

// runSocket is the path of the socket of "make run" (tools/run.sh), relative to the directory for
// which the documentation's lines are written.
const runSocket = "run/ipam.sock"

// line is a command of the documentation, with its continuation lines.
type line struct {
	file   string
	number int
	text   string
}

// TestCurlLines runs every line that starts with curl in a sh block of README.md and docs/*.md,
// unchanged and in order. Each file gets a new daemon.
func TestCurlLines(t *testing.T) {
	t.Parallel()
	requireCurl(t)
	files, err := filepath.Glob(filepath.Join(documentation, "docs", "*", "*.md"))
	check.Must(t, err)
	total := 0
	for _, file := range append(files, filepath.Join(documentation, "README.md")) {
		lines := curlLines(t, file)
		total += len(lines)
		if len(lines) == 0 {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			n := startAsMakeRun(t)
			failOnError(t, n.Dir)
			for _, l := range lines {
				runLine(t, n.Dir, l)
			}
		})
	}
	if total == 0 {
		t.Error("README.md and docs/*.md have no curl lines")
	}
}

func TestFindCurlLines(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "README.md")
	text := "curl outside\n```sh\nmake run\ncurl one \\\n  two\n  curl three\necho\ncurl \"$(\n curl four)\"\n```\n```json\ncurl five\n```\n"
	check.Must(t, os.WriteFile(file, []byte(text), 0o600))
	want := []line{{file, 4, "curl one \\\n  two"}, {file, 6, "  curl three"}, {file, 8, "curl \"$(\n curl four)\""}}
	if got := curlLines(t, file); !slices.Equal(got, want) {
		t.Errorf("found %+v; want %+v", got, want)
	}
}

// curlLines returns the commands of a file that start with curl in a sh block, with their
// continuation lines.
func curlLines(t *testing.T, file string) []line {
	t.Helper()
	data, err := os.ReadFile(file)
	check.Must(t, err)
	var found []line
	inside, unfinished := false, false
	for i, text := range strings.Split(string(data), "\n") {
		trimmed := strings.TrimSpace(text)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			inside, unfinished = trimmed == "```sh", false
			continue
		case unfinished:
			found[len(found)-1].text += "\n" + text
		case inside && strings.HasPrefix(trimmed, "curl"):
			found = append(found, line{file: file, number: i + 1, text: text})
		default:
			continue
		}
		unfinished = continues(found[len(found)-1].text)
	}
	return found
}

// continues reports whether a shell would wait for another line: after a backslash, and within
// quotes or parentheses.
func continues(text string) bool {
	return strings.HasSuffix(text, `\`) || exec.Command("sh", "-n", "-c", text).Run() != nil
}

// startAsMakeRun starts a daemon with the network and the socket of "make run".
func startAsMakeRun(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t, harness.DualStack())
	n.Socket = filepath.Join(n.Dir, runSocket)
	check.Must(t, os.Mkdir(filepath.Dir(n.Socket), 0o755))
	n.Start(t)
	return n
}

// runLine fails the test unless the line succeeds.
func runLine(t *testing.T, dir string, l line) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", l.text)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CURL_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s:%d: %s: %v; it printed %q", l.file, l.number, l.text, err, out)
	}
}

// requireCurl skips a test without curl; in CI it fails.
func requireCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		harness.Skipf(t, "no curl: %v", err)
	}
}

// failOnError configures curl to exit with an error for an error response, as it does not by
// default. Every line in the documentation must succeed.
func failOnError(t *testing.T, dir string) {
	t.Helper()
	check.Must(t, os.WriteFile(filepath.Join(dir, ".curlrc"), []byte("fail-with-body\n"), 0o600))
}

var (
	// demo matches the commands of README.md that begin with a curl line, and their output.
	demo = regexp.MustCompile("(?s)```sh\n(curl .*?)```\n.*?```text\n(.*?)```\n")
	// containerIDHash and age differ between runs: the first one depends on the node's name.
	containerIDHash = regexp.MustCompile(`-[0-9a-f]{16}\b`)
	age             = regexp.MustCompile(`\b(?:\d+m)?\d+s\b`)
)

// TestDemo runs the demo of README.md and compares its output.
func TestDemo(t *testing.T) {
	t.Parallel()
	requireCurl(t)
	text, err := os.ReadFile(filepath.Join(documentation, "README.md"))
	check.Must(t, err)
	block := demo.FindSubmatch(text)
	if block == nil {
		t.Fatalf("README.md has no demo that matches %s", demo)
	}
	n := startAsMakeRun(t)
	check.Must(t, os.Symlink(harness.Binary(t), filepath.Join(n.BinDir, "delegated-ipam")))
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", string(block[1]))
	cmd.Dir = n.Dir
	var failure strings.Builder
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the demo of README.md: %v; it printed %q and %q", err, out, failure.String())
	}
	if got, want := withoutVarying(string(out)), withoutVarying(string(block[2])); got != want {
		t.Errorf("the demo of README.md prints\n%s\nbut README.md shows\n%s", got, want)
	}
}

// withoutVarying replaces what differs between runs.
func withoutVarying(output string) string {
	output = containerIDHash.ReplaceAllString(output, "-HASH")
	return strings.TrimSpace(age.ReplaceAllString(output, "AGE"))
}

// TestMakeRun runs the curl lines that "make run" prints twice, in each of two runs. An address that the
// first run has allocated stays.
func TestMakeRun(t *testing.T) {
	t.Parallel()
	requireCurl(t)
	n := harness.NewNode(t)
	failOnError(t, n.Dir)
	c := harness.Client{Socket: filepath.Join(n.Dir, runSocket)}
	var held [][]string
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
		held = append(held, c.Allocate(t, harness.Request{Owner: "kept"}).Addresses())
		interrupt(t, run)
	}
	if len(held[0]) != 2 || !slices.Equal(held[0], held[1]) {
		t.Errorf("the runs gave %q; want the same two addresses", held)
	}
}

// makeRun starts tools/run.sh in the directory of the node, as "make run" does in the repository,
// waits until the daemon is ready and returns the printed curl lines.
func makeRun(t *testing.T, n *harness.Node) (*exec.Cmd, []string) {
	t.Helper()
	script, err := filepath.Abs("../../../tools/run.sh")
	check.Must(t, err)
	output, err := os.Create(filepath.Join(n.Dir, "output"))
	check.Must(t, err)
	defer output.Close()
	cmd := exec.Command(script, harness.Binary(t), n.BinDir)
	cmd.Dir = n.Dir
	cmd.Stdout, cmd.Stderr = output, output
	check.Must(t, cmd.Start())
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			interrupt(t, cmd)
		}
	})
	harness.Eventually(t, "make run to become ready", harness.Client{Socket: filepath.Join(n.Dir, runSocket)}.Ready)
	printed, err := os.ReadFile(output.Name())
	check.Must(t, err)
	var lines []string
	for text := range strings.Lines(string(printed)) {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "curl ") {
			lines = append(lines, text)
		}
	}
	return cmd, lines
}

// interrupt sends the signal of Ctrl-C and waits for the exit.
func interrupt(t *testing.T, run *exec.Cmd) {
	t.Helper()
	check.Must(t, run.Process.Signal(syscall.SIGINT))
	if err := run.Wait(); err != nil {
		t.Errorf("after SIGINT: %v; want exit status 0", err)
	}
}
