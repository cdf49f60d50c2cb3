package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
)

const (
	daemon = "delegated-ipam"
	bridge = "delegated-ipam-bridge"
	cni    = "delegated-ipam-cni"
	cri    = "delegated-ipam-cri"
	sums   = "SHA256SUMS"
)

// names returns the programs.
func names() []string { return []string{daemon, bridge, cni, cri} }

// images returns the images. That of the daemon has the CNI plugin and the reporter of CRI, too.
func images() []string { return []string{daemon, bridge} }

// architectures returns the architectures in the words of GOARCH.
func architectures() []string { return []string{"amd64", "arm64"} }

// writePrograms writes an archive and a bill of materials of each program for each architecture.
func (r release) writePrograms() error {
	for _, arch := range architectures() {
		for _, name := range names() {
			if err := r.writeProgram(name, arch); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r release) writeProgram(name, arch string) error {
	program, err := readFile(name, 0o755, filepath.Join(r.programs, arch, name))
	if err != nil {
		return err
	}
	license, err := readFile("LICENSE", 0o644, filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	licenses, err := readFile("licenses/"+name, 0o644, filepath.Join(r.programs, arch, name+".licenses"))
	if err != nil {
		return err
	}
	content := []file{program, license, licenses}
	if name == daemon {
		unit, err := readFile("delegated-ipam.service", 0o644, filepath.Join(r.root, "deploy", "systemd", "delegated-ipam.service"))
		if err != nil {
			return err
		}
		content = append(content, unit)
	}
	archive, err := tarGz(content, r.time)
	if err != nil {
		return err
	}
	if err := r.save(name+"-linux-"+arch+".tar.gz", archive); err != nil {
		return err
	}
	return r.copy(name+"-linux-"+arch+".cdx.json", filepath.Join(r.parts, name+"-"+arch+".cdx.json"))
}

// writeImages writes the archive of each image.
func (r release) writeImages() error {
	for _, name := range images() {
		if err := r.copy(name+"-image.tar", filepath.Join(r.parts, name+".tar")); err != nil {
			return err
		}
	}
	return nil
}

// copy copies a file into the release.
func (r release) copy(name, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return r.save(name, content)
}

// writeSums writes the checksums of the files so far, as sha256sum does.
func (r release) writeSums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return r.save(sums, text.Bytes())
}
