package cniplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/delegated-ipam/delegated-ipam/internal/spool"
)

// del runs DEL. One that the daemon did not answer, or rejected for now, is left in the spool, and
// succeeds: not every runtime repeats a failed DEL, so the address would never be released. Any other
// error fails it.
func del(args *skel.CmdArgs) error {
	conf, err := parseReduced(args.StdinData)
	if err != nil {
		return err
	}
	body, err := json.Marshal(conf.request(args))
	if err != nil {
		return err
	}
	begin, s, e := time.Now(), conf.daemon(), conf.entry(args)
	s.wait = delWait
	_, err = s.call(delOperation, "", body)
	if err == nil {
		return nil
	}
	if !errors.Is(err, errLater) {
		return cniError(err)
	}
	spoolErr := leave(conf.spoolPath(), e)
	if spoolErr == nil {
		return nil
	}
	// Without the spool only a later attempt helps.
	s.wait, s.timeout = daemonWait-time.Since(begin), s.timeout-time.Since(begin)
	if s.wait > 0 && s.timeout > 0 {
		if _, err = s.call(delOperation, "", body); err == nil {
			return nil
		}
		if !errors.Is(err, errLater) {
			return cniError(err)
		}
	}
	return cniError(&later{err: fmt.Errorf("%w; and the DEL cannot be left for it: %w", err, spoolErr)})
}

const delOperation = "POST /v1/cni/del"

// entry returns what would be left of a DEL that is called now: its container ID may be added again while it waits.
func (c *config) entry(args *skel.CmdArgs) spool.Entry {
	e := spool.Entry{
		Network: c.Name, ContainerID: args.ContainerID, IfName: args.IfName, Args: args.Args,
		Written: time.Now(), NetNS: args.Netns,
	}
	if info, err := os.Stat(args.Netns); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			e.Device, e.Inode = uint64(stat.Dev), stat.Ino
		}
	}
	return e
}

// leave leaves a DEL for the daemon.
func leave(path string, e spool.Entry) error {
	d, err := spool.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Put(e)
}
