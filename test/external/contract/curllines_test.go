package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
// unchanged and in order. Each file gets a new sidecar.
func TestCurlLines(t *testing.T) {
	t.Parallel()
	requireCurl(t)
	total := 0
	for _, file := range documentationFiles(t) {
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
	harness.Must(t, os.WriteFile(file, []byte(text), 0o600))
	want := []string{"curl one \\\n  two", "  curl three", "curl \"$(\n curl four)\""}
	lines := curlLines(t, file)
	if len(lines) != len(want) {
		t.Fatalf("found %+v; want %q", lines, want)
	}
	for i, l := range lines {
		if l.text != want[i] {
			t.Errorf("found %q; want %q", l.text, want[i])
		}
	}
}

func documentationFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(documentation, "docs", "*", "*.md"))
	harness.Must(t, err)
	return append([]string{filepath.Join(documentation, "README.md")}, files...)
}

// curlLines returns the commands of a file that start with curl in a sh block, with their
// continuation lines.
func curlLines(t *testing.T, file string) []line {
	t.Helper()
	data, err := os.ReadFile(file)
	harness.Must(t, err)
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

// startAsMakeRun starts a sidecar with the network and the socket of "make run".
func startAsMakeRun(t *testing.T) *harness.Node {
	t.Helper()
	n := nodeWith(t, harness.DualStack())
	n.Socket = filepath.Join(n.Dir, runSocket)
	harness.Must(t, os.Mkdir(filepath.Dir(n.Socket), 0o755))
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
	harness.Must(t, os.WriteFile(filepath.Join(dir, ".curlrc"), []byte("fail-with-body\n"), 0o600))
}
