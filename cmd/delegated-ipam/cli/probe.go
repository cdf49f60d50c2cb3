package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/unixsock"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/unreachable"
	"github.com/delegated-ipam/delegated-ipam/pkg/client"
)

// probeTimeout is below the default timeoutSeconds of the kubelet, 1 s, so that the reason is
// printed before the kubelet ends the probe.
const probeTimeout = 900 * time.Millisecond

// Kinds of `probe`.
const (
	probeStartup = "startup"
	probeReady   = "ready"
	probeLive    = "live"
)

func (d dependencies) probeCommand() *cobra.Command {
	var host string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "probe {startup | ready | live}",
		Short: "Report by the exit status whether the daemon serves",
		Long: `Run a probe: exit status 0 is success, 1 failure with the reason on stderr, 2 wrong
usage. The kubelet cannot speak HTTP to a unix socket, so this is for exec probes.

  startup  the daemon beside this command answers on its socket, ready or not: on a new
           node cilium-agent itself writes the CNI configuration, and waits for the daemon
  ready    it has a CNI configuration, its plugin reports that it can serve, and the
           journal can be written
  live     a process answers; plugin, journal and configuration have no effect

For startup and ready the answer must come from this PID namespace: while a pod is
replaced, the old daemon still answers on the same socket, and the new one waits for it.`,
		Example: `  delegated-ipam probe ready && echo ready

  # In a pod
  #   startupProbe:
  #     exec: {command: [delegated-ipam, probe, startup]}`,
		ValidArgs: []string{probeStartup, probeReady, probeLive},
		Args:      probeArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return probe(cmd.Context(), args[0], options.Socket(host), timeout)
		},
	}
	options.Register(cmd.Flags(), options.Host(&host, d.env), options.Option{
		Name: "timeout", Value: options.Timeout(&timeout), Default: probeTimeout.String(), Help: "time limit of the probe; keep it below timeoutSeconds of the kubelet",
	})
	return cmd
}

// probeArgs accepts the kind of the probe.
func probeArgs(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cmdline.Usagef("got %d arguments %q; expected one of %s", len(args), args, strings.Join(cmd.ValidArgs, ", "))
	}
	if !slices.Contains(cmd.ValidArgs, args[0]) {
		return cmdline.Usagef("unknown probe %q; expected one of %s", args[0], strings.Join(cmd.ValidArgs, ", "))
	}
	return nil
}

func probe(ctx context.Context, kind, socket string, timeout time.Duration) error {
	settings := []client.Option{client.WithTimeout(timeout)}
	if kind != probeLive {
		settings = append(settings, client.WithDialer(dialSamePIDNamespace))
	}
	c, err := client.New(socket, settings...)
	if err != nil {
		return fmt.Errorf("probe %s: %w", kind, err)
	}
	if kind == probeReady {
		err = checkReady(ctx, c)
	} else if err = c.Ping(ctx); errors.As(err, new(*client.Error)) {
		err = nil // a refusal is a response, too
	}
	if err = unreachable.Explain(socket, timeout, err); err != nil {
		return fmt.Errorf("probe %s: %s", kind, logging.OneLine(err.Error()))
	}
	return nil
}

// checkReady returns nil if the daemon reports that it is ready.
func checkReady(ctx context.Context, c *client.Client) error {
	status, err := c.BriefStatus(ctx)
	switch {
	case err != nil:
		return err
	case status.Cilium == nil:
		return fmt.Errorf("the daemon at %s reports no state; does it have the version of this command?", c.Socket())
	case status.Cilium.State != models.StatusStateOk:
		return fmt.Errorf("daemon %s", status.Cilium.Msg)
	}
	return nil
}

// dialSamePIDNamespace connects to a process in this PID namespace.
func dialSamePIDNamespace(ctx context.Context, network, socket string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, socket)
	if err != nil {
		return nil, err
	}
	peer, err := unixsock.PeerOf(conn)
	if err == nil && peer.PID == 0 {
		err = fmt.Errorf("the process that answers on %s is in another PID namespace, such as the pod that this one replaces: the daemon here does not serve yet", socket)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
