package hostlocal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// network is the network of all configurations of the tests, and dirMark the dataDir in them.
const (
	testNetwork = "net"
	dirMark     = "DIR"
)

// request is a call of host-local. Its configuration has dirMark in place of the dataDir.
type request struct {
	command, id, ifname, args, config string
}

func (r request) configIn(dir string) []byte {
	return []byte(strings.ReplaceAll(r.config, dirMark, dir))
}

// reply is the JSON of a result, and the text of an error, which has dirMark in place of the dataDir.
type reply struct {
	Result any
	Err    string
}

// text returns the error, or the addresses.
func (r reply) text() string {
	if r.Err != "" {
		return r.Err
	}
	var ips []string
	for _, ip := range resultIPs(r) {
		ips = append(ips, ip.String())
	}
	return strings.Join(ips, " ")
}

const notRequested = "failed to allocate all requested IPs: "

func errorReply(dir, text string) reply {
	text = strings.ReplaceAll(text, dir, dirMark)
	if list, ok := strings.CutPrefix(text, notRequested); ok { // the program prints them in random order
		ips := strings.Fields(list)
		slices.Sort(ips)
		text = notRequested + strings.Join(ips, " ")
	}
	return reply{Err: text}
}

// embedded makes a request by Stores.Call.
func embedded(ctx context.Context, s *Stores, dir string, r request) (reply, error) {
	result, err := s.Call(ctx, r.command, Args{ContainerID: r.id, IfName: r.ifname, CNIArgs: r.args, Config: r.configIn(dir)})
	if err != nil || result == nil {
		if err != nil {
			return errorReply(dir, err.Error()), err
		}
		return reply{}, nil
	}
	return reply{Result: resultAs(result, r.config)}, nil
}

// resultAs returns a result as the JSON that the program prints for a configuration.
func resultAs(result *current.Result, config string) any {
	var conf types.NetConf
	if err := json.Unmarshal([]byte(config), &conf); err != nil {
		return err
	}
	converted, err := result.GetAsVersion(conf.CNIVersion)
	if err != nil {
		return err
	}
	var printed bytes.Buffer
	if err := converted.PrintTo(&printed); err != nil {
		return err
	}
	decoded, err := decode(printed.Bytes())
	if err != nil {
		return err
	}
	return decoded
}

// decode decodes a result. Programs before v1.9 print empty DNS settings.
func decode(result []byte) (any, error) {
	var fields map[string]any
	err := json.Unmarshal(result, &fields)
	if dns, ok := fields["dns"].(map[string]any); ok && len(dns) == 0 {
		delete(fields, "dns")
	}
	return fields, err
}

// program is a host-local of containernetworking/plugins.
type program struct{ version, path string }

// newest is the version that Stores.Call is.
const newest = "v1.10"

// programs returns the newest version and the older ones. It skips the test without them.
func programs(t testing.TB) []program {
	t.Helper()
	now, old := os.Getenv(harness.EnvPlugins), os.Getenv(harness.EnvOldPlugins)
	if now == "" || old == "" {
		t.Skipf("%s or %s is not set; they name directories of real plugins (make plugins)", harness.EnvPlugins, harness.EnvOldPlugins)
	}
	all := []program{{newest, filepath.Join(now, hostLocal)}}
	for _, version := range []string{"v1.9", "v1.4", "v1.0"} {
		all = append(all, program{version, filepath.Join(old, version, hostLocal)})
	}
	return all
}

const hostLocal = "host-local"

// commandUntil returns the process of a request, which is killed when ctx ends.
func (p program) commandUntil(ctx context.Context, dir string, r request) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.path)
	cmd.Env = []string{
		"CNI_COMMAND=" + r.command, "CNI_CONTAINERID=" + r.id, "CNI_IFNAME=" + r.ifname, "CNI_ARGS=" + r.args,
		"CNI_NETNS=/none", "CNI_NETNS_OVERRIDE=true", "CNI_PATH=/none", "GOMAXPROCS=1",
	}
	cmd.Stdin = bytes.NewReader(r.configIn(dir))
	return cmd
}

// call makes a request by the program. The error is one of running it.
func (p program) call(dir string, r request) (reply, error) {
	return replyOf(p.commandUntil(context.Background(), dir, r), dir)
}

func replyOf(cmd *exec.Cmd, dir string) (reply, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		var reported types.Error
		if err := json.Unmarshal(out, &reported); err != nil || reported.Code != types.ErrInternal {
			return reply{}, fmt.Errorf("%s: %s, error %v", cmd.Path, out, err)
		}
		return errorReply(dir, reported.Msg), nil
	}
	if err != nil || stderr.Len() > 0 {
		return reply{}, fmt.Errorf("%s: %w, %s", cmd.Path, err, stderr.String())
	}
	var r reply
	if len(out) > 0 {
		r.Result, err = decode(out)
	}
	return r, err
}

// contents returns mode and content of each file of the network, by its name.
func contents(t testing.TB, dir string, modes bool) map[string]string {
	t.Helper()
	dir = filepath.Join(dir, testNetwork)
	all := map[string]string{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	check.Must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		check.Must(t, err)
		if !info.Mode().IsRegular() {
			all[e.Name()] = info.Mode().String()
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		check.Must(t, err)
		all[e.Name()] = fmt.Sprintf("%q", data)
		if modes {
			all[e.Name()] += " " + info.Mode().String()
		}
	}
	return all
}

// closeStores closes the indexes of Stores: a user has a limited number of inotify instances, without which tests would
// have no index.
func closeStores(all ...*Stores) {
	for _, s := range all {
		for _, n := range s.networks {
			if n.index != nil {
				n.close()
			}
		}
		s.networks = nil
	}
}
