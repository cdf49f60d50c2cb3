package plugin

import (
	"errors"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(previousRun); dir != "" {
		if err := addInPreviousRun(dir); err != nil {
			log.Fatal(err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "delegate-test-")
	if err != nil {
		log.Fatal(err)
	}
	binary := filepath.Join(dir, "scripted")
	build := exec.Command("go", "build", "-o", binary, "../../test/scripted")
	build.Stderr = os.Stderr
	if err := errors.Join(build.Run(), os.Setenv(harness.EnvScripted, binary)); err != nil {
		log.Fatal(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}
