package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/metricsserver"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
)

// serve opens the socket, passes the records to the engine and serves until ctx ends.
func (a *app) serve(ctx context.Context) error {
	c := a.config
	metricsListener, err := a.listenMetrics(ctx)
	if err != nil {
		return err
	}
	listener, err := unixsock.Listen(c.SocketOptions(), c.callers(), a.overLimit)
	if err != nil {
		if metricsListener != nil {
			err = errors.Join(err, metricsListener.Close())
		}
		return err
	}
	if err := unixsock.CheckParentMode(c.SocketPath); err != nil {
		a.log.WithError(err).Warn("The socket's directory is not safe")
	}
	loaded := len(a.loaded.Records)
	a.engine.Start(a.loaded.Records)
	a.loaded.Records = nil // the engine has its own copies

	a.status.Start() // before the work on many records delays it
	a.engine.Reconcile()
	a.log.WithFields(logrus.Fields{
		"socket": c.SocketPath, "stateDir": c.StateDir, "nodeName": c.NodeName, "podName": c.PodName,
		"attachments": loaded, "version": c.Version,
	}).Info("Serving")

	background, stopBackground := context.WithCancel(context.Background())
	waitBackground := a.startBackground(background, metricsListener)
	server := unixsock.Server(a.api, a.log)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	a.status.Notify(daemon.SdNotifyReady) // not once it is ready: the agent may write the CNI configuration

	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("socket %s: %w", c.SocketPath, err)
	}
	stopping, cancel := context.WithTimeout(context.Background(), a.stopTimeout())
	defer cancel()
	err = errors.Join(err, a.stop(stopping, server))
	a.overLimit.Stop()
	a.refusals.Stop()
	stopBackground()
	err = errors.Join(err, waitBackground())
	if a.status.Wait(stopping) != nil {
		a.log.Warn("Stopped while a VERSION or STATUS call still runs")
	}
	return err
}

// startBackground watches the CNI configuration and the containers, logs the readiness, returns memory and serves the metrics until ctx ends. The function that it returns waits for the end of all.
func (a *app) startBackground(ctx context.Context, metricsListener net.Listener) (wait func() error) {
	var running sync.WaitGroup
	var watchErr, drainErr error
	running.Go(func() { a.status.Run(ctx) })
	running.Go(func() { watchErr = a.conf.Run(ctx) })
	running.Go(func() { drainErr = a.drainer.Run(ctx) })
	running.Go(func() { a.ended.Run(ctx) })
	running.Go(func() { a.returnMemory(ctx) })
	running.Go(func() { a.serveMetrics(ctx, metricsListener) })
	return func() error {
		running.Wait()
		return errors.Join(watchErr, drainErr)
	}
}

// returnMemory returns to the system what loading and the first verification of all records needed. The
// runtime would keep it for later, of which an idle daemon needs little.
func (a *app) returnMemory(ctx context.Context) {
	ticks := time.NewTicker(time.Second)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if a.engine.QueueLengths()[engine.QueueBackground] == 0 {
			debug.FreeOSMemory()
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(200) // the heap is small, so that requests pay for many collections
			}
			return
		}
	}
}

// stopTimeout returns how long a stop takes at most: an operation begins its last plugin call within
// its budget.
func (a *app) stopTimeout() time.Duration { return budget + plugin.MaxCall(a.config.PluginTimeout) }

// stop fails readiness, rejects new work and waits for running operations, or for the end of ctx. It
// releases nothing.
func (a *app) stop(ctx context.Context, server *http.Server) error {
	a.status.Stopping()
	a.status.Notify(daemon.SdNotifyStopping, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", a.stopTimeout().Microseconds()))
	a.log.WithField("timeout", a.stopTimeout()).Info("Stopping: waiting for running plugin calls")
	if err := a.engine.Stop(ctx); err != nil {
		return errors.Join(fmt.Errorf("plugin calls still run after %s; their operations are recorded as unfinished: %w", a.stopTimeout(), err), server.Close())
	}
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop: %w", err)
	}
	a.log.Info("Stopped")
	return nil
}

// listenMetrics listens on --metrics-address; nil if that is empty.
func (a *app) listenMetrics(ctx context.Context) (net.Listener, error) {
	address, err := options.ListenAddress(a.config.MetricsAddress)
	if address == "" || err != nil {
		return nil, err
	}
	return metricsserver.Listen(ctx, address)
}

// serveMetrics serves the metrics until ctx ends. Its failure does not stop the API.
func (a *app) serveMetrics(ctx context.Context, l net.Listener) {
	if l == nil {
		return
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsserver.Path, a.metrics.Handler())
	a.log.WithField("address", l.Addr()).Info("Serving metrics")
	if err := metricsserver.Serve(ctx, l, mux); err != nil {
		a.log.WithError(err).Error("Metrics are no longer served")
	}
}
