package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// script is the misbehaviour of a verb. Without a file, and after Times calls, the verb works.
type script struct {
	// Times limits the script to that many calls; 0 is all calls.
	Times int `json:"times"`
	// AfterWork executes the verb first, so that a failure follows a change that remains.
	AfterWork bool `json:"afterWork"`
	// Late accepts the call, which is executed when the test runs the argument "replay". Without
	// another field that determines its end, the process exits immediately without output.
	Late bool `json:"late"`
	// Announce is a FIFO in the script directory that is opened for writing, which blocks until
	// there is a reader.
	Announce string `json:"announce"`
	// Gate is a file in the script directory that the call waits for.
	Gate string `json:"gate"`
	// Stderr and Stdout are printed as they are; Result and Error as JSON.
	Stderr string          `json:"stderr"`
	Stdout string          `json:"stdout"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	// StdoutBytes and StderrBytes are the numbers of letters that are printed in addition.
	StdoutBytes int `json:"stdoutBytes"`
	StderrBytes int `json:"stderrBytes"`
	// HoldStdout is a file in the script directory: a child keeps stdout, stderr and every inherited
	// file open until it exists.
	HoldStdout string `json:"holdStdout"`
	// IgnoreTerm ignores SIGTERM from the start.
	IgnoreTerm bool `json:"ignoreTerm"`
	// LeaveGroup moves the process into the process group of its parent.
	LeaveGroup bool `json:"leaveGroup"`
	// AwaitTerm waits for SIGTERM and then continues.
	AwaitTerm bool `json:"awaitTerm"`
	// Hang makes the process run until it is killed.
	Hang bool `json:"hang"`
	// KillSelf is a signal that the plugin sends to itself.
	KillSelf int `json:"killSelf"`
	// Shell is a shell command that replaces the plugin's process, without Go's signal handlers,
	// such as "kill -SEGV $$".
	Shell string `json:"shell"`
	// ExitCode is the exit status; with Error it is 1 unless it is given.
	ExitCode *int `json:"exitCode"`
	// Versions are the supported CNI versions; all if empty. Those in version.json apply to every
	// verb.
	Versions []string `json:"versions"`
}

// loadScript returns the script of a verb; an empty one if there is none.
func loadScript(dir, verb string) (script, error) {
	s, err := readScript(dir, verb)
	if err != nil {
		return script{}, err
	}
	supported, err := readScript(dir, "VERSION")
	if err != nil {
		return script{}, err
	}
	if s.Times > 0 {
		n, err := count(strings.TrimSuffix(scriptFile(dir, verb), ".json") + ".count")
		if err != nil {
			return script{}, err
		}
		if n > s.Times {
			s = script{}
		}
	}
	s.Versions = supported.Versions
	return s, nil
}

// scriptFile returns the path of the script of a verb for the owner of the call, such as
// del.router.json, or of the one for all owners. The owner is named as in its container ID
// (docs/design/how-it-works.md, Identity).
func scriptFile(dir, verb string) string {
	if name := ownerOf(os.Getenv("CNI_CONTAINERID")); name != "" {
		file := filepath.Join(dir, strings.ToLower(verb)+"."+name+".json")
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return filepath.Join(dir, strings.ToLower(verb)+".json")
}

// ownerID matches a container ID of the daemon, with or without a generation.
var ownerID = regexp.MustCompile(`^cilium-agent-(.+)-[0-9a-f]{16}(-[gu][0-9a-f]+)?$`)

func ownerOf(containerID string) string {
	if m := ownerID.FindStringSubmatch(containerID); m != nil {
		return m[1]
	}
	return ""
}

func readScript(dir, verb string) (script, error) {
	var s script
	data, err := os.ReadFile(scriptFile(dir, verb))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("script of %s: %w", verb, err)
	}
	return s, nil
}

// count increments the number in a file and returns it.
func count(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n := 0
	if len(data) > 0 {
		if n, err = strconv.Atoi(string(data)); err != nil {
			return 0, err
		}
	}
	n++
	_, err = f.WriteAt([]byte(strconv.Itoa(n)), 0)
	return n, err
}
