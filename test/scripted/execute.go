package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// execute executes the script. It returns false if the verb must still be executed.
func (s script) execute(dir string) (bool, error) {
	if s.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	if s.LeaveGroup {
		group, err := syscall.Getpgid(os.Getppid())
		if err == nil {
			err = syscall.Setpgid(0, group)
		}
		if err != nil {
			return true, err
		}
	}
	if s.AwaitTerm {
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		<-term
	}
	if s.Announce != "" {
		// Opening a FIFO for writing blocks until there is a reader.
		f, err := os.OpenFile(filepath.Join(dir, s.Announce), os.O_WRONLY, 0)
		if err != nil {
			return true, err
		}
		f.Close()
	}
	if s.Gate != "" {
		waitForFile(filepath.Join(dir, s.Gate))
	}
	if s.HoldStdout != "" {
		if err := startChild(filepath.Join(dir, s.HoldStdout)); err != nil {
			return true, err
		}
	}
	said, err := s.print()
	if err != nil {
		return true, err
	}
	if s.KillSelf != 0 {
		if err := syscall.Kill(os.Getpid(), syscall.Signal(s.KillSelf)); err != nil {
			return true, err
		}
	}
	if s.Shell != "" {
		return true, syscall.Exec("/bin/sh", []string{"sh", "-c", s.Shell}, nil)
	}
	for s.Hang || s.KillSelf != 0 {
		time.Sleep(time.Hour)
	}
	switch {
	case s.ExitCode != nil:
		os.Exit(*s.ExitCode)
	case s.Error != nil:
		os.Exit(1)
	}
	return said || s.AfterWork || s.Late, nil
}

// print prints the output of the script, and reports whether stdout was written.
func (s script) print() (bool, error) {
	answer := s.Stdout + string(s.Result) + string(s.Error)
	err := errors.Join(
		printLetters(os.Stderr, s.Stderr, 'e', s.StderrBytes),
		printLetters(os.Stdout, answer, 'o', s.StdoutBytes),
	)
	return answer != "" || s.StdoutBytes > 0, err
}

// printLetters writes a text and then that many letters, in chunks.
func printLetters(to io.Writer, text string, letter byte, letters int) error {
	_, err := io.WriteString(to, text)
	for part := bytes.Repeat([]byte{letter}, 64<<10); letters > 0 && err == nil; letters -= len(part) {
		_, err = to.Write(part[:min(len(part), letters)])
	}
	return err
}

// startChild starts a child that inherits all open files and outlives this process. Files above
// stderr are inheritable already.
func startChild(until string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, "hold", until)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	return child.Start()
}

// waitForFile returns when the file exists, or its directory was removed at the end of the test.
func waitForFile(path string) {
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
