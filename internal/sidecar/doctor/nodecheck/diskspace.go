package nodecheck

import (
	"fmt"
	"path/filepath"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor/check"
)

// DiskSpace checks that the journal and the plugins have free space.
var DiskSpace = check.Check{Name: "disk-space", Run: func(o *check.Observations) []check.Finding {
	if o.Config == nil {
		return nil
	}
	all := diskSpace(o.StateDir)
	for _, p := range o.Pools {
		if p.Known() && p.Plugin.StateErr == nil && filepath.IsAbs(p.StateDir.Path) {
			for _, f := range diskSpace(p.StateDir) {
				all = append(all, f.OfPool(p.Name))
			}
		}
	}
	return all
}}

// The limits of the two states. A record takes 4 KiB, with several invocations a multiple
// of that, and is written beside the old one before it replaces that; the file of an
// address takes one block, mostly 4 KiB. Below the limits of a warning, the addresses of a
// full node, some hundred, do not fit; below those of an error, the next few writes fail,
// which each allocation and release needs.
const (
	warnBytes, errorBytes   = 16 << 20, 1 << 20
	warnInodes, errorInodes = 1024, 64
)

func diskSpace(f check.Dir) []check.Finding {
	if f.Err != nil {
		return nil // reported by the check of the directory
	}
	text := freeText(f)
	remedy := fmt.Sprintf("free space on the file system of %s: at least %d MiB and %d inodes; without it nothing can be allocated or released", f.At, warnBytes>>20, warnInodes)
	limited := f.Inodes > 0
	switch {
	case f.Free < errorBytes, limited && f.FreeInodes < errorInodes:
		return []check.Finding{check.Fail(remedy, "%s", text)}
	case f.Free < warnBytes, limited && f.FreeInodes < warnInodes:
		return []check.Finding{check.Warn(remedy, "%s", text)}
	}
	return []check.Finding{check.Pass("%s", text)}
}

func freeText(f check.Dir) string {
	text := fmt.Sprintf("%d MiB", f.Free>>20)
	if f.Free < 10<<20 {
		text = fmt.Sprintf("%d KiB", f.Free>>10)
	}
	if f.Inodes > 0 {
		text += fmt.Sprintf(" and %d inodes", f.FreeInodes)
	}
	return fmt.Sprintf("%s are free for %s", text, f.Path)
}
