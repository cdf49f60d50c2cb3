// Command sbom writes the software bill of materials of a Go program to standard output, as CycloneDX
// JSON: the modules that are in the program, with their versions and checksums, from the build
// information that the linker has put there. It writes their licences to PROGRAM.licenses. The same
// program gives the same bytes.
//
//	sbom PROGRAM VERSION
//
// VERSION is the version of the program's own module, which the build information does not have.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write writes the bill of materials of a program, and its file with licences.
func write(w io.Writer, program, version string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	var licenses bytes.Buffer
	if err := writeLicenses(&licenses, info); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	if err := os.WriteFile(program+".licenses", licenses.Bytes(), 0o644); err != nil {
		return err
	}
	bom, err := newBOM(info, filepath.Base(program), version, sha256.Sum256(content))
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// newBOM returns the bill of materials of a program with a SHA-256 sum.
func newBOM(info *debug.BuildInfo, name, version string, sum [sha256.Size]byte) (*cdx.BOM, error) {
	bom := cdx.NewBOM()
	// A serial number is a random UUID; this one is derived from the program.
	bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceOID, sum[:]).String()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		Type: cdx.ComponentTypeApplication, BOMRef: info.Path, Name: name, Version: version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@" + version,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}}
	components := []cdx.Component{{
		Type: cdx.ComponentTypeLibrary, BOMRef: "std", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	refs := []string{"std"}
	for _, module := range info.Deps {
		c, err := component(module)
		if err != nil {
			return nil, err
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: info.Path, Dependencies: &refs}}
	return bom, nil
}

// component returns the component of a module, or of the one that replaces it.
func component(module *debug.Module) (cdx.Component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	url := "pkg:golang/" + module.Path + "@" + module.Version
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: url, Name: module.Path, Version: module.Version, PackageURL: url}
	if module.Sum == "" { // a directory
		return c, nil
	}
	// "h1:" is SHA-256 of the module's content (golang.org/x/mod/sumdb/dirhash), in base64.
	encoded, ok := strings.CutPrefix(module.Sum, "h1:")
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil {
		return c, errors.Join(fmt.Errorf("module %s has the sum %q; expected h1: and base64", module.Path, module.Sum), err)
	}
	c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return c, nil
}
