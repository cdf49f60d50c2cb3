// Command scripted is a CNI IPAM plugin for tests. Without scripts it is a fast and correct plugin
// with a store; files in its script directory cause every fault in docs/reference/plugins.md
// (Traps and their tests).
//
// The script directory is ipam.scriptDir of the network configuration, or "<executable>.d" (VERSION
// gets no configuration). A symbolic link to the binary with the name of a plugin type is a plugin
// of that type; it imitates whereabouts, calico-ipam and azure-ipam (quirksOf). The directory contains
//
//	add.json, del.json, check.json, status.json, version.json   type script
//	add.NAME.json, …   the same for one owner (scriptFile)       type script
//	calls.log   one JSON line for each call                      type logLine
//	store/      one file for each held address                   type store
//	cooldown/   one file for each address in cooldown            type store
//	queue/      DELs that the daemon has not executed            type queue
//	daemon-down while it exists, the plugin's daemon is down     type queue
//	late/       calls that "replay" executes                     type lateCall
//
// The argument "replay" executes the late calls of the named owners, or all of them.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		waitForFile(os.Args[2])
		return
	}
	do := run
	if len(os.Args) > 1 && os.Args[1] == "replay" {
		do = func() error { return replay(os.Args[2:]) }
	}
	if err := do(); err != nil {
		// Exit status 3 without output shows a mistake of the test.
		fmt.Fprintln(os.Stderr, "scripted:", err)
		os.Exit(3)
	}
}

func run() error {
	stdin, err := readStdin()
	if err != nil {
		return err
	}
	conf, err := parseConf(stdin)
	if err != nil {
		return err
	}
	if err := logCall(conf.scriptDir(), stdin); err != nil {
		return err
	}
	verb := os.Getenv("CNI_COMMAND")
	s, err := loadScript(conf.scriptDir(), verb)
	if err != nil {
		return err
	}
	if s.Late {
		if err := acceptLate(conf.scriptDir(), stdin); err != nil {
			return err
		}
	}
	if s.AfterWork {
		if err := runVerb(conf, s, true); err != nil {
			return err
		}
	}
	if done, err := s.execute(conf.scriptDir()); done || err != nil {
		return err
	}
	return runVerb(conf, s, false)
}

// runVerb executes the verb, silently or with the result on stdout. It ignores SIGTERM, as a server
// completes a request whose client has disconnected.
func runVerb(conf conf, s script, silently bool) error {
	signal.Ignore(syscall.SIGTERM)
	defer signal.Reset(syscall.SIGTERM)
	versions := version.All
	supported := s.Versions
	if len(supported) == 0 {
		supported = conf.IPAM.Versions
	}
	if len(supported) > 0 {
		versions = version.PluginSupports(supported...)
	}
	if silently {
		return withoutStdout(func() error { return dispatch(conf, versions) })
	}
	return dispatch(conf, versions)
}

func dispatch(conf conf, versions version.PluginInfo) error {
	p := plugin{conf: conf}
	cniErr := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: p.add, Del: p.del, Check: p.check, Status: p.status, GC: p.gc,
	}, versions, "scripted test plugin")
	if cniErr == nil {
		return nil
	}
	if err := cniErr.Print(); err != nil {
		return err
	}
	os.Exit(1)
	return nil
}
