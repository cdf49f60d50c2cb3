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

// play carries the script out. It returns false if the verb is still to be done.
func (s script) play(dir string) (bool, error) {
	if s.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	if s.AwaitTerm {
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		<-term
	}
	if s.Announce != "" {
		// Opening a FIFO for writing returns when a reader is there.
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
		if err := leaveChild(filepath.Join(dir, s.HoldStdout)); err != nil {
			return true, err
		}
	}
	said, err := s.say()
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

// say prints, and tells whether anything on stdout took the answer's place.
func (s script) say() (bool, error) {
	answer := s.Stdout + string(s.Result) + string(s.Error)
	err := errors.Join(
		printLetters(os.Stderr, s.Stderr, 'e', s.StderrBytes),
		printLetters(os.Stdout, answer, 'o', s.StdoutBytes),
	)
	return answer != "" || s.StdoutBytes > 0, err
}

// printLetters writes a text and then so many letters, never all of them in memory.
func printLetters(to io.Writer, text string, letter byte, letters int) error {
	_, err := io.WriteString(to, text)
	for part := bytes.Repeat([]byte{letter}, 64<<10); letters > 0 && err == nil; letters -= len(part) {
		_, err = to.Write(part[:min(len(part), letters)])
	}
	return err
}

// leaveChild starts a child that has all our files and outlives us. Those above
// stderr come by themselves: whoever started us made them inheritable.
func leaveChild(until string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, "hold", until)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	return child.Start()
}

// waitForFile returns when the file is there, or its directory is gone: the test
// is over then, and nobody is left to end this process.
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
