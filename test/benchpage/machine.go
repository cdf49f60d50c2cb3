// Package benchpage names the machine of a benchmark for its tables.
package benchpage

import (
	"fmt"
	"os/exec"
	"runtime"
)

// Machine names the machine, the file system of a directory, which it creates, and the version of Go. It
// fails if the directory cannot be created or its file system is unknown.
func Machine(dir string) (string, error) {
	// findmnt(8), because statfs(2) has one number for ext2, ext3 and ext4.
	out, err := exec.Command("sh", "-ec", `mkdir -p "$1"
cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
fs=$(findmnt --noheadings --output=FSTYPE --target "$1")
printf '%s, %d cores, Linux %s, %s' "${cpu:-unknown CPU}" "$(nproc)" "$(uname -r)" "$fs"`, "machine", dir).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("name the machine (findmnt is in Debian package util-linux): %w: %s", err, out)
	}
	return fmt.Sprintf("%s, %s", out, runtime.Version()), nil
}
