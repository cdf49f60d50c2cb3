package cli

import (
	"os"

	"github.com/sirupsen/logrus"
)

// logHangups logs each signal until stop is called, which waits for its end.
func logHangups(hangups <-chan os.Signal, log logrus.FieldLogger) (stop func()) {
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			case <-hangups:
				log.Info("SIGHUP: nothing to read again, because every option is a flag; restart the bridge to change one")
			}
		}
	}()
	return func() {
		close(stopped)
		<-done
	}
}
