package main

import (
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
)

// gc frees every address whose holder is not among the valid attachments (CNI spec 1.1.0,
// section 4, "GC"), as if the caller were the only one with attachments. With the quirk
// "nothing" it succeeds and frees nothing.
func (p plugin) gc(*skel.CmdArgs) error {
	if p.conf.IPAM.GC == "nothing" {
		return nil
	}
	s, err := p.conf.openStore()
	if err != nil {
		return err
	}
	defer s.close()
	var named []string
	for _, a := range p.conf.Valid {
		named = append(named, a.ContainerID+"\n"+a.IfName)
	}
	return s.freeUnless(func(text string) bool { return slices.Contains(named, text) })
}
