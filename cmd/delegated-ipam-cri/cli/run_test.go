package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// run runs a command line, which gets as far as this error, and returns its options.
func run(t *testing.T, environ []string, args ...string) (got options.CRI, code int, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = cmdline.Execute(t.Context(), command(environ, "v1", func(_ context.Context, o options.CRI, _ logrus.FieldLogger) error {
		got = o
		return errors.New("ended")
	}), args, &out, &errs)
	return got, code, errs.String()
}

func TestOptions(t *testing.T) {
	defaults := options.CRI{
		CRISocket: "unix:///run/containerd/containerd.sock", SocketPath: "/var/run/delegated-ipam/ipam.sock", Interval: time.Minute,
		Log: options.Log{LogLevel: "info", LogFormat: "text"},
	}
	for name, tt := range map[string]struct {
		env  []string
		args []string
		want func(o *options.CRI)
	}{
		"defaults":    {nil, nil, func(*options.CRI) {}},
		"environment": {[]string{"K8S_POD_UID=u"}, nil, func(o *options.CRI) { o.PodUID = "u" }},
		"all": {[]string{"K8S_POD_UID=u"}, []string{"--cri-socket=/run/crio/crio.sock", "--socket-path=/s", "--interval=10s", "--pod-uid=v", "--log-format=json"}, func(o *options.CRI) {
			o.CRISocket, o.SocketPath, o.Interval, o.PodUID, o.LogFormat = "unix:///run/crio/crio.sock", "/s", 10*time.Second, "v", "json"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaults
			tt.want(&want)
			got, code, stderr := run(t, tt.env, tt.args...)
			check.Equal(t, "options", got, want)
			check.Equal(t, "exit code", code, cmdline.ExitFailed)
			check.Contains(t, stderr, "Starting delegated-ipam-cri", "Error: ended")
		})
	}
}

func TestBadValues(t *testing.T) {
	for _, arg := range []string{
		"--cri-socket=", "--cri-socket=containerd.sock", "--cri-socket=tcp://127.0.0.1:1", "--cri-socket=@cri", "--socket-path=s", "--socket-path=",
		"--interval=1s", "--interval=60", "--log-level=loud", "--log-format=xml", "argument",
	} {
		t.Run(arg, func(t *testing.T) {
			_, code, stderr := run(t, nil, arg)
			check.Equal(t, "exit code", code, cmdline.ExitUsage)
			name, _, _ := strings.Cut(arg, "=")
			check.Contains(t, stderr, name, "expected")
		})
	}
}

func TestRun(t *testing.T) {
	var out strings.Builder
	check.Equal(t, "exit code", Run(t.Context(), []string{"version"}, nil, &out, &out, "v1"), cmdline.ExitOK)
	check.Contains(t, out.String(), "delegated-ipam-cri version v1 (go")
}
