package main

import (
	"io"
	"os"
)

// readStdin reads stdin, and replaces it by a copy for the CNI skeleton.
func readStdin() ([]byte, error) {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() {
		_, _ = w.Write(data)
		w.Close()
	}()
	os.Stdin = r
	return data, nil
}

// withoutStdout calls f with stdout redirected to /dev/null.
func withoutStdout(f func() error) error {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	stdout := os.Stdout
	os.Stdout = null
	defer func() { os.Stdout = stdout }()
	return f()
}
