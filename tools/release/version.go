package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/mod/semver"
)

// version is the version of a release, with its "v".
type version string

// parseVersion returns a version of the form vMAJOR.MINOR.PATCH[-SUFFIX] (Semantic Versioning 2.0.0).
// Build metadata ("+…") is refused: a tag of an image cannot contain it.
func parseVersion(text string) (version, error) {
	if !semver.IsValid(text) || semver.Canonical(text) != text {
		return "", fmt.Errorf("VERSION is %q; expected vMAJOR.MINOR.PATCH, or vMAJOR.MINOR.PATCH-SUFFIX for a pre-release", text)
	}
	return version(text), nil
}

// number returns the version without its "v", as charts and CHANGELOG.md have it.
func (v version) number() string { return strings.TrimPrefix(string(v), "v") }

// snapshot reports whether the version is of the form vMAJOR.MINOR.PATCH-snapshot…: a trial, which may
// be made of any tree and needs no section in CHANGELOG.md.
func (v version) snapshot() bool { return strings.HasPrefix(semver.Prerelease(string(v)), "-snapshot") }

// checkCheckout returns why the version must not be made of a checkout: it has uncommitted changes, or
// the version's tag is another commit.
func (v version) checkCheckout(root string) error {
	if v.snapshot() {
		return nil
	}
	changes, err := git(root, "status", "--porcelain")
	if err != nil {
		return fmt.Errorf("%w; expected a clone, or a version with the suffix -snapshot", err)
	}
	if changes != "" {
		return fmt.Errorf("the checkout has changes; expected none, or a version with the suffix -snapshot:\n%s", changes)
	}
	head, err := git(root, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	tags, err := git(root, "for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags/"+string(v))
	if err != nil {
		return err
	}
	if tags != "" && !strings.Contains(tags, head) {
		return fmt.Errorf("the tag %s is another commit than HEAD (%s); check out the tag, or release another version", v, head)
	}
	return nil
}

// git returns the output of a git command in a checkout, without the last line feed.
func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], errors.Join(err, errors.New(strings.TrimSpace(stderr.String()))))
	}
	return strings.TrimRight(string(out), "\n"), nil
}
