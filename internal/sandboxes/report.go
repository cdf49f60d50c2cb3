// Package sandboxes reports the pod sandboxes of a container runtime to the daemon. The runtime's socket
// gives root on the node, so the package calls Version and ListPodSandbox only, and configures nothing by
// their responses.
package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	httptransport "github.com/go-openapi/runtime/client"
	"github.com/go-openapi/strfmt"
	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	generated "github.com/delegated-ipam/delegated-ipam/client"
	"github.com/delegated-ipam/delegated-ipam/client/cni"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/unreachable"
)

const (
	// callTimeout limits each call of the runtime and of the daemon.
	callTimeout = 10 * time.Second
	// repeatedInterval is the time between two lines about failures with different reasons.
	repeatedInterval = 10 * time.Minute
)

// Run reports the sandboxes at the interval of the options until the context ends. The error is that the
// runtime's socket was replaced where this process cannot see it.
func Run(ctx context.Context, o options.CRI, log logrus.FieldLogger) error {
	ticker := time.NewTicker(o.Interval)
	defer ticker.Stop()
	return newReporter(o, log).run(ctx, ticker.C)
}

// reporter sends the list of one runtime to one daemon.
type reporter struct {
	options.CRI
	limit  time.Duration
	daemon cni.ClientService
	log    logrus.FieldLogger
	// succeeds reports whether the last report succeeded; otherwise failure is why it failed.
	succeeds bool
	failure  string
	failures *logging.Repeated
}

func newReporter(o options.CRI, log logrus.FieldLogger) *reporter {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", o.SocketPath)
	}
	// A daemon that was restarted has closed the connections that were kept open.
	over := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	return &reporter{
		CRI: o, limit: callTimeout, log: log, failures: logging.NewRepeated(log, repeatedInterval),
		daemon: cni.New(httptransport.NewWithClient(generated.DefaultHost, generated.DefaultBasePath, generated.DefaultSchemes, over), strfmt.Default),
	}
}

// run makes a report, and one at each tick.
func (r *reporter) run(ctx context.Context, ticks <-chan time.Time) error {
	defer r.failures.Stop()
	for {
		if err := r.round(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// round makes a report and logs its outcome. The error is of checkMount.
func (r *reporter) round(ctx context.Context) error {
	report, err := r.report(ctx)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.logSuccess(report)
	default:
		if err := r.checkMount(err); err != nil {
			return err
		}
		r.logFailure(err)
	}
	return nil
}

// report sends the sandboxes that the runtime has now.
func (r *reporter) report(ctx context.Context) (*models.CNISandboxes, error) {
	report, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	_, err = r.daemon.ReportSandboxesContext(ctx, cni.NewReportSandboxesParams().WithRequest(report))
	return report, r.refused(err)
}

// refused adds to an error of the daemon what to do.
func (r *reporter) refused(err error) error {
	if invalid, ok := errors.AsType[*cni.ReportSandboxesInvalid](err); ok {
		return fmt.Errorf("the daemon at %s refuses the list: %s", r.SocketPath, invalid.Payload)
	}
	if forbidden, ok := errors.AsType[*cni.ReportSandboxesForbidden](err); ok {
		return fmt.Errorf("the daemon at %s refuses the caller: %s; run this program as root", r.SocketPath, forbidden.Payload)
	}
	if other, ok := errors.AsType[*cni.ReportSandboxesDefault](err); ok {
		return fmt.Errorf("the daemon at %s returned the status %d: %s; expected 200: run a daemon of the version of this program", r.SocketPath, other.Code(), other.Payload)
	}
	return unreachable.Explain(r.SocketPath, r.limit, err)
}

// checkMount returns an error if a report has failed because the runtime's socket was removed, and this
// process still sees it: a container has the file that was mounted at its start, and never a new one.
func (r *reporter) checkMount(failure error) error {
	path := options.Socket(r.CRISocket)
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Nlink > 0 {
		return nil
	}
	return fmt.Errorf("the socket %s was removed on the host, as by a restart of the container runtime; start this container again, which mounts the new one: %w", path, failure)
}

func (r *reporter) logSuccess(report *models.CNISandboxes) {
	fields := logrus.Fields{"runtime": report.Runtime, "sandboxes": len(report.Sandboxes)}
	if r.succeeds {
		r.log.WithFields(fields).Debug("Reported the pod sandboxes")
		return
	}
	r.failures.Stop() // its lines come before the next one
	r.log.WithFields(fields).Info("Reports of the pod sandboxes succeed")
	r.succeeds, r.failure = true, ""
}

func (r *reporter) logFailure(err error) {
	r.succeeds = false
	if reason := logging.OneLine(err.Error()); reason != r.failure {
		r.failure = reason
		r.failures.Warn(logrus.Fields{"error": reason}, "The pod sandboxes were not reported")
	}
}
