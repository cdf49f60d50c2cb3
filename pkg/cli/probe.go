package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

// probeTimeout is below the second that a kubelet gives a probe unless it is told
// otherwise (timeoutSeconds), so that the reason is said before it gives up.
const probeTimeout = 900 * time.Millisecond

// Kinds of `probe`.
const (
	probeStartup = "startup"
	probeReady   = "ready"
	probeLive    = "live"
)

// probeOptions are the flags of `probe`.
type probeOptions struct {
	host    string
	timeout time.Duration
}

// probeCommand is `probe`.
func (p program) probeCommand() *cobra.Command {
	o := &probeOptions{timeout: probeTimeout}
	cmd := &cobra.Command{
		Use:   "probe {startup | ready | live}",
		Short: "Answer a probe of the kubelet by the exit status",
		Long: `Answer a probe by the exit status: 0 yes, 1 no with the reason on stderr, 2 wrong
usage. The kubelet cannot speak HTTP to a unix socket, so this is for exec probes.

  startup  the sidecar beside this command answers on its socket, ready or not: on a new
           node cilium-agent itself writes the CNI configuration, and waits for the sidecar
  ready    it has a CNI configuration, its plugin can be asked and says that it can serve,
           and the journal can be written
  live     a process answers; whatever plugin, journal and configuration do

Of startup and ready the answer must come from this PID namespace: while a pod is replaced,
the old one still answers on the same socket, and the new one waits for it.`,
		Example: `  delegated-ipam probe ready && echo addresses can be had

  # In a pod
  #   startupProbe:
  #     exec: {command: [delegated-ipam, probe, startup]}`,
		ValidArgs: []string{probeStartup, probeReady, probeLive},
		Args:      o.arguments,
		RunE:      func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	addHost(cmd, &o.host, p.env)
	cmd.Flags().Var(option.Duration(&o.timeout), "timeout", "how long to wait for the answer; below timeoutSeconds of the probe")
	return cmd
}

// arguments takes the kind of the probe.
func (o *probeOptions) arguments(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return option.WrongUsage("got %d arguments %q; expected one of %s", len(args), args, strings.Join(cmd.ValidArgs, ", "))
	}
	if o.timeout <= 0 {
		return option.WrongUsage("--timeout is %s; expected a duration above 0s", o.timeout)
	}
	if !slices.Contains(cmd.ValidArgs, args[0]) {
		return option.WrongUsage("unknown probe %q; expected one of %s", args[0], strings.Join(cmd.ValidArgs, ", "))
	}
	return nil
}

func (o *probeOptions) run(ctx context.Context, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	a := asker{socket: option.Socket(o.host), here: kind != probeLive}
	ask := a.answers
	if kind == probeReady {
		ask = a.ready
	}
	err := ask(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the sidecar at %s gave no answer within %s", a.socket, o.timeout)
	}
	if err != nil {
		return fmt.Errorf("probe %s: %s", kind, oneLine(err.Error()))
	}
	return nil
}

// asker asks a sidecar one cheap question. It is not the generated client, which
// does not show who answers.
type asker struct {
	socket string
	// here wants the answer from a process of this PID namespace.
	here bool
}

// answers is nil if anything is answered, also a refusal. What is asked for waits
// for the engine, but neither for plugin nor disk (GET /config).
func (a asker) answers(ctx context.Context) error {
	res, err := a.get(ctx, "/v1/config")
	if err == nil {
		err = res.Body.Close()
	}
	return err
}

// ready is nil if the sidecar says that it is.
func (a asker) ready(ctx context.Context) error {
	res, err := a.get(ctx, "/v1/healthz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var status models.StatusResponse
	if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
		return fmt.Errorf("the sidecar at %s answered %s, which is no status: %w", a.socket, res.Status, err)
	}
	if status.Cilium == nil {
		return fmt.Errorf("the sidecar at %s does not say how it is; is it one of this version?", a.socket)
	}
	if status.Cilium.State != models.StatusStateOk {
		return fmt.Errorf("sidecar %s", status.Cilium.Msg)
	}
	return nil
}

func (a asker) get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("brief", "true")
	return (&http.Transport{DisableKeepAlives: true, DialContext: a.dial}).RoundTrip(req)
}

// dial connects to the socket and looks who listens there.
func (a asker) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
	if err != nil || !a.here {
		return conn, err
	}
	peer, err := unixsock.PeerOf(conn)
	if err == nil && peer.PID == 0 {
		err = fmt.Errorf("who answers on %s is in another PID namespace, such as the pod that this one replaces: the sidecar here does not serve yet", a.socket)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
