package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// callsPerOperation is how many plugin calls may follow each other in one
// operation that has begun: CHECK, then three times DEL and ADD, then the DEL
// that undoes it.
const callsPerOperation = 8

// serve opens the socket, takes over the records and answers until ctx ends.
func (d *daemon) serve(ctx context.Context) error {
	c := d.config
	scrapes, err := d.listenForScrapes(ctx)
	if err != nil {
		return err
	}
	listener, err := unixsock.Listen(c.socket())
	if err != nil {
		return err
	}
	if err := unixsock.CheckParentMode(c.SocketPath); err != nil {
		d.log.WithError(err).Warn("The socket's folder is not safe")
	}
	loaded := len(d.loaded.Records)
	d.engine.Start(d.loaded.Records)
	d.loaded.Records = nil // the engine has them; what they were at the start would only take room
	watching, stopWatching := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	// Whoever never asks reads in the log whether it is ready: at the start, and when
	// a configuration comes or goes.
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	d.conf.OnChange(func(string) {
		select {
		case changed <- struct{}{}:
		default: // it will be looked at anyway
		}
	})
	told := make(chan struct{})
	go func() { defer close(told); d.tell(watching, changed) }()
	go func() { watched <- d.conf.Run(watching) }()
	scraped := make(chan struct{})
	go func() { defer close(scraped); d.serveScrapes(watching, scrapes) }()

	server := unixsock.Server(d.handler, d.log)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	d.log.WithFields(logrus.Fields{
		"socket": c.SocketPath, "stateDir": c.StateDir, "nodeName": c.NodeName,
		"attachments": loaded, "version": c.Version,
	}).Info("Serving")

	select {
	case <-ctx.Done():
		err = d.stop(server)
	case err = <-served:
		err = errors.Join(fmt.Errorf("socket %s: %w", c.SocketPath, err), d.stop(server))
	}
	stopWatching()
	<-scraped
	<-told
	err = errors.Join(err, <-watched)
	d.awaitAsked()
	return err
}

// tell lets the log say whether it is ready, after each change and until ctx ends. It
// looks again as long as an answer is awaited: a plugin or a disk may take longer to
// give it than a report waits.
func (d *daemon) tell(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		for settled := false; !settled && ctx.Err() == nil; {
			_, settled = d.report(ctx)
		}
	}
}

// awaitAsked waits until no plugin is asked for the report any more, so that none
// outlives us; but not for one that its time limit does not end.
func (d *daemon) awaitAsked() {
	ended := make(chan struct{})
	go func() { d.asking.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * (d.config.PluginTimeout + delegate.DefaultGrace)):
		d.log.Warn("A plugin that was asked by VERSION or STATUS does not end")
	}
}

// stop fails readiness, refuses new work, and waits for what has begun, at most
// as long as one operation's plugin calls may take. Nothing is released.
func (d *daemon) stop(server *http.Server) error {
	d.stopping.Store(true)
	patience := callsPerOperation * (d.config.PluginTimeout + delegate.DefaultGrace)
	d.log.WithField("patience", patience).Info("Stopping: waiting for plugin calls that run")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := d.engine.Stop(ctx); err != nil {
		return errors.Join(fmt.Errorf("plugin calls still run after %s; what they do is recorded as unfinished: %w", patience, err), server.Close())
	}
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop: %w", err)
	}
	d.log.Info("Stopped")
	return nil
}
