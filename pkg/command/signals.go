package command

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
	received, stopped, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(received, unix.SIGUSR1)
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			case <-received:
				// As a panic prints them. An error of stderr cannot be reported anywhere.
				_ = pprof.Lookup("goroutine").WriteTo(w, 2)
			}
		}
	}()
	return func() {
		signal.Stop(received)
		close(stopped)
		<-done
	}
}
