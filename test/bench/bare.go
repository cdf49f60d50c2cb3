package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
)

// bare runs host-local as a minimal Go program would: the same verbs with the same input as the
// sidecar, without durable writes and checks.
type bare struct {
	path   string
	config []byte
}

// newBare returns the plugin over a separate store.
func newBare(plugins, store string) (*bare, error) {
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": network, "type": "cilium-cni", "ipam": ipamSection(store),
	})
	return &bare{path: filepath.Join(plugins, "host-local"), config: config}, err
}

// run runs one verb for an owner's container ID and returns its output.
func (b *bare) run(verb, owner string, config []byte) ([]byte, error) {
	cmd := exec.Command(b.path)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + containerid.For(owner, nodeName, network),
		"CNI_NETNS=/var/run/netns/none", "CNI_IFNAME=eth0", "CNI_ARGS=IgnoreUnknown=1", "CNI_PATH=" + filepath.Dir(b.path),
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(config), &out, &out
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("host-local %s: %w: %s", verb, err, out.Bytes())
	}
	return out.Bytes(), nil
}

// acquire runs DEL and ADD and returns the result and their time.
func (b *bare) acquire(owner string) (result []byte, took time.Duration, err error) {
	took, err = timed(func() error {
		if _, err := b.run("DEL", owner, b.config); err != nil {
			return err
		}
		result, err = b.run("ADD", owner, b.config)
		return err
	})
	return result, took, err
}

// del runs DEL with the result of the ADD, as the sidecar does.
func (b *bare) del(owner string, result []byte) (time.Duration, error) {
	return b.with("DEL", owner, result)
}

// check runs CHECK.
func (b *bare) check(owner string, result []byte) (time.Duration, error) {
	return b.with("CHECK", owner, result)
}

func (b *bare) with(verb, owner string, result []byte) (time.Duration, error) {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(b.config, &config); err != nil {
		return 0, err
	}
	config["prevResult"] = result
	input, err := json.Marshal(config)
	if err != nil {
		return 0, err
	}
	return timed(func() error {
		_, err := b.run(verb, owner, input)
		return err
	})
}
