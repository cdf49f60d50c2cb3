// Command scripted is a CNI IPAM plugin for tests. Left alone it is a fast and
// correct plugin with a store of its own; files in a script directory make it fail
// in every way that docs/plugins.md knows of (Traps and their tests).
//
// The script directory is ipam.scriptDir of the network configuration, or
// "<executable>.d" beside the executable as it was called (VERSION gets no
// configuration). Put a symbolic link to the binary under any plugin type's
// name to have a plugin of that type; whereabouts, calico-ipam, azure-ipam and
// cni-ipvlan-vpc-k8s-ipam are imitated then (quirksOf). The directory holds
//
//	add.json, del.json, check.json, status.json, version.json   type script
//	add.NAME.json, …   the same for one owner (scriptFile)       type script
//	calls.log   one JSON line for each call                      type logLine
//	store/      one file for each address held                   type store
//	cooldown/   one file for each address that cools down        type store
//	queue/      DELs that are still to be carried out            type queue
//	daemon-down while it is there, the plugin's daemon is down   type queue
//	late/       calls that are carried out by "replay"           type lateCall
//	living-pods the pods that live, for the argument "reconcile" reconcile
//
// The argument "replay" carries out the late calls, those of the named owners or all.
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
	switch {
	case len(os.Args) == 2 && os.Args[1] == "reconcile":
		do = reconcile
	case len(os.Args) > 1 && os.Args[1] == "replay":
		do = func() error { return replay(os.Args[2:]) }
	}
	if err := do(); err != nil {
		// Exit 3 without a word on stdout is what a test sees of its own mistake.
		fmt.Fprintln(os.Stderr, "scripted:", err)
		os.Exit(3)
	}
}

func run() error {
	stdin, err := takeStdin()
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
		if err := putLate(conf.scriptDir(), stdin); err != nil {
			return err
		}
	}
	if s.AfterWork {
		if err := work(conf, s, true); err != nil {
			return err
		}
	}
	if done, err := s.play(conf.scriptDir()); done || err != nil {
		return err
	}
	return work(conf, s, false)
}

// work does what the verb asks for, silently or with the answer on stdout. SIGTERM
// does not interrupt it: a server finishes a request whose client has gone.
func work(conf conf, s script, silently bool) error {
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
		return quietly(func() error { return dispatch(conf, versions) })
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
