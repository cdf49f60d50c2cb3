package cmdline

import (
	"io"
	"os"
	"os/signal"
	"runtime/pprof"

	"golang.org/x/sys/unix"
)

// Hangups returns a channel that receives SIGHUP, which does not terminate the process any more
// until stop is called. Signals that arrive before the last one was received count as one.
func Hangups() (hangups <-chan os.Signal, stop func()) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, unix.SIGHUP)
	return received, func() { signal.Stop(received) }
}

// DumpGoroutines writes the stacks of all goroutines to w at each SIGUSR1, which does not terminate
// the process any more, until stop is called. stop waits for a dump in progress.
func DumpGoroutines(w io.Writer) (stop func()) {
	received := make(chan os.Signal, 1)
	signal.Notify(received, unix.SIGUSR1)
	stopDumps := OnEach(received, func() {
		// As a panic prints them. An error of stderr cannot be reported anywhere.
		_ = pprof.Lookup("goroutine").WriteTo(w, 2)
	})
	return func() {
		signal.Stop(received)
		stopDumps()
	}
}

// OnEach calls do for each signal until stop is called, which waits for a call in progress.
func OnEach(signals <-chan os.Signal, do func()) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			case <-signals:
				do()
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
	}
}
