// Package benchpage describes the machine of a benchmark and writes tables into a page of docs/.
package benchpage

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine names the machine, and the file system of a directory, which it creates.
func Machine(dir string) (string, error) {
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	model := "unknown CPU"
	if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(cpuinfo); m != nil {
		model = string(m[1])
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// statfs(2) has one number for ext2, ext3 and ext4.
	fs, err := exec.Command("findmnt", "--noheadings", "--output=FSTYPE", "--target", dir).Output()
	if err != nil {
		return "", fmt.Errorf("findmnt (Debian package util-linux): file system of %s: %w", dir, err)
	}
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, %s", model, runtime.NumCPU(), unix.ByteSliceToString(uts.Release[:]),
		strings.TrimSpace(string(fs)), runtime.Version()), nil
}
