package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// logLine is one call as the plugin received it.
type logLine struct {
	Verb string `json:"verb"`
	PID  int    `json:"pid"`
	// Env is the plugin's whole environment.
	Env map[string]string `json:"env"`
	// Stdin is the configuration, as a JSON string if it is not JSON.
	Stdin json.RawMessage `json:"stdin"`
}

// logCall appends a line with one write, so that the lines of concurrent calls do not mix.
func logCall(dir string, stdin []byte) error {
	line := logLine{Verb: os.Getenv("CNI_COMMAND"), PID: os.Getpid(), Env: map[string]string{}, Stdin: stdin}
	if !json.Valid(stdin) {
		text, err := json.Marshal(string(stdin))
		if err != nil {
			return err
		}
		line.Stdin = text
	}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		line.Env[name] = value
	}
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "calls.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write(append(data, '\n'))
	return err
}
