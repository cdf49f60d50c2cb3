package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
)

// lateCall is a call that the server has accepted and executes when the test runs "replay", even
// if the process that sent it was killed. The names of the files in late/ have the order of
// arrival.
type lateCall struct {
	Verb        string    `json:"verb"`
	ContainerID string    `json:"containerID"`
	IfName      string    `json:"ifName"`
	NetNS       string    `json:"netns"`
	Args        string    `json:"args"`
	Stdin       string    `json:"stdin"`
	Accepted    time.Time `json:"accepted"`
}

func lateDir(scriptDir string) string { return filepath.Join(scriptDir, "late") }

// acceptLate stores this call for later. The file is created atomically, because a test waits for
// it.
func acceptLate(scriptDir string, stdin []byte) error {
	c := lateCall{
		Verb: os.Getenv("CNI_COMMAND"), ContainerID: os.Getenv("CNI_CONTAINERID"), IfName: os.Getenv("CNI_IFNAME"),
		NetNS: os.Getenv("CNI_NETNS"), Args: os.Getenv("CNI_ARGS"), Stdin: string(stdin), Accepted: time.Now(),
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(lateDir(scriptDir), 0o755); err != nil {
		return err
	}
	n, err := count(filepath.Join(scriptDir, "late.count"))
	if err != nil {
		return err
	}
	unnamed := filepath.Join(scriptDir, "late."+strconv.Itoa(n))
	name := filepath.Join(lateDir(scriptDir), fmt.Sprintf("%08d-%s", n, c.Verb))
	return errors.Join(os.WriteFile(unnamed, data, 0o600), os.Rename(unnamed, name))
}

// replay executes the late calls of the named owners, or all of them, in the order of arrival. A
// call that fails changes nothing.
func replay(owners []string) error {
	here, err := parseConf(nil)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(lateDir(here.scriptDir()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		file := filepath.Join(lateDir(here.scriptDir()), e.Name())
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another replay has executed it
		}
		var c lateCall
		if err = errors.Join(err, json.Unmarshal(data, &c)); err != nil {
			return err
		}
		if len(owners) > 0 && !slices.Contains(owners, ownerOf(c.ContainerID)) {
			continue
		}
		switch err := os.Remove(file); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		}
		if err := c.execute(); err != nil {
			fmt.Fprintf(os.Stderr, "the late %s of %s: %v\n", c.Verb, c.ContainerID, err)
		}
	}
	return nil
}

// execute executes the call, unless the server has dropped it.
func (c lateCall) execute() error {
	conf, err := parseConf([]byte(c.Stdin))
	if err != nil {
		return err
	}
	if keeps := time.Duration(conf.IPAM.LateSeconds) * time.Second; keeps > 0 && time.Since(c.Accepted) > keeps {
		return fmt.Errorf("dropped after %s", keeps)
	}
	p := plugin{conf: conf}
	args := &skel.CmdArgs{ContainerID: c.ContainerID, IfName: c.IfName, Netns: c.NetNS, Args: c.Args, StdinData: []byte(c.Stdin)}
	switch c.Verb {
	case "ADD":
		return withoutStdout(func() error { return p.add(args) })
	case "DEL":
		return p.del(args)
	default:
		return fmt.Errorf("a late %s changes nothing; script ADD or DEL", c.Verb)
	}
}
