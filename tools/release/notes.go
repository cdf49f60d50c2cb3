package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	changelog  = "CHANGELOG.md"
	notesFile  = "RELEASE_NOTES.md"
	unreleased = "Unreleased"
)

// section matches the heading of a version in CHANGELOG.md: its number, and its date.
var section = regexp.MustCompile(`(?m)^## \[([^\]]+)\](?: - (\S+))?$`)

// date matches the date of a version.
var date = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}$`)

// notes returns the section of the version in CHANGELOG.md without its heading. That of a snapshot may
// be missing; then it is the section of what is not released.
func (r release) notes() (string, error) {
	data, err := os.ReadFile(filepath.Join(r.root, changelog))
	if err != nil {
		return "", err
	}
	text, day, found := cut(string(data), r.version.number())
	if !found && r.version.snapshot() {
		text, _, _ = cut(string(data), unreleased)
		return text, nil
	}
	switch {
	case !found:
		return "", fmt.Errorf("%s has no section \"## [%s] - YYYY-MM-DD\"; expected one for %s", changelog, r.version.number(), r.version)
	case text == "":
		return "", fmt.Errorf("the section [%s] of %s is empty; expected the changes", r.version.number(), changelog)
	case !date.MatchString(day):
		return "", fmt.Errorf("the section [%s] of %s has the date %q; expected YYYY-MM-DD", r.version.number(), changelog, day)
	}
	return text, nil
}

// cut returns the text and the date of the section with a name.
func cut(text, name string) (content, day string, found bool) {
	all := section.FindAllStringSubmatchIndex(text, -1)
	for i, m := range all {
		if text[m[2]:m[3]] != name {
			continue
		}
		end := len(text)
		if i+1 < len(all) {
			end = all[i+1][0]
		}
		if m[4] >= 0 {
			day = text[m[4]:m[5]]
		}
		return strings.TrimSpace(text[m[1]:end]), day, true
	}
	return "", "", false
}

// writeNotes writes the text of the release page. It is not a file of the release, so SHA256SUMS does
// not have it.
func (r release) writeNotes() error {
	text, err := r.notes()
	if err != nil {
		return err
	}
	if text != "" {
		text += "\n\n"
	}
	return r.save(notesFile, []byte(text+strings.NewReplacer("VERSION", string(r.version), "NUMBER", r.version.number()).Replace(fileTable)))
}

// fileTable describes the files of a release.
const fileTable = `## Files

| file | content |
|---|---|
| ` + "`NAME-linux-ARCHITECTURE.tar.gz`" + ` | the program, static, and the licences of its modules; with the daemon's the systemd unit |
| ` + "`NAME-image.tar`" + ` | the image ` + "`NAME:VERSION`" + ` for amd64 and arm64, an OCI archive; chart and manifests name its digest |
| ` + "`NAME-linux-ARCHITECTURE.cdx.json`" + ` | the bill of materials of the program, CycloneDX |
| ` + "`kubernetes-DIRECTORY.yaml`" + ` | a kustomization of ` + "`deploy/kubernetes`" + ` as one file, with the images of this version |
| ` + "`delegated-ipam-NUMBER.tgz`, `chart-values.yaml`" + ` | the Helm chart, and its values |
| ` + "`cilium-*.yaml`" + ` | values for Cilium's chart |
| ` + "`deploy.tar.gz`" + ` | all of ` + "`deploy/`" + `, with the images of this version |

` + "`sha256sum --check --ignore-missing SHA256SUMS`" + ` checks the files that you have. Each archive and image, and
SHA256SUMS, has a signature ` + "`FILE.sigstore.json`" + ` of the release workflow; every file has a provenance:

` + "```sh" + `
cosign verify-blob --bundle SHA256SUMS.sigstore.json SHA256SUMS \
  --certificate-oidc-issuer https://token.actions.githubusercontent.com \
  --certificate-identity https://github.com/delegated-ipam/delegated-ipam/.github/workflows/release.yml@refs/tags/VERSION
gh attestation verify delegated-ipam-image.tar --repo delegated-ipam/delegated-ipam
` + "```" + `

The images are also ` + "`ghcr.io/delegated-ipam/NAME:VERSION`" + `, and the chart is
` + "`oci://ghcr.io/delegated-ipam/charts/delegated-ipam`, version `NUMBER`" + `.

How to install them: ` + "`docs/install`" + ` of the tag VERSION.
`
