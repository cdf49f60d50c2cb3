package cniplugin

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// wantFailure wants an error that no runtime takes for success.
func wantFailure(t *testing.T, what string, err *types.Error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: succeeded", what)
		return
	}
	for _, text := range []string{"not found", "no such file or directory"} {
		if strings.Contains(strings.ToLower(err.Error()), text) {
			t.Errorf("%s: got %q; containerd takes %q for success", what, err, text)
		}
	}
}

// The error of each failed DEL: of the daemon, of a plugin behind it, of the socket and of the call.
func TestDelErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		code    int
		body    string
		config  string
		environ []string
		texts   []string
	}{
		"plugin":            {502, `"plugin dhcp DEL: Link not found"`, "", nil, []string{"Link missing"}},
		"plugin in capital": {502, `"plugin x DEL: 404 Not Found: open /a/b: No such file or directory (os error 2)"`, "", nil, []string{"404 missing", "/a/b: file is missing (os error 2)"}},
		"repeated":          {502, `"not found: not found; NOT FOUND"`, "", nil, []string{"missing: missing; missing"}},
		"old daemon":        {404, `"path /v1/cni/del was not found"`, "", nil, []string{"was missing"}},
		"network":           {404, `"network \"pods\": open /etc/cni/net.d: no such file or directory"`, "", nil, []string{"net.d: file is missing"}},
		"refused":           {403, `"user not found"`, "", nil, []string{"user missing"}},
		"invalid":           {400, `"not found"`, "", nil, nil},
		"version":           {200, "", configWith("/x", "not found"), nil, []string{"missing"}},
		"configuration":     {200, "", `{"cniVersion":"1.1.0","name":"pods","ipam":{"type":"not found"}}`, nil, nil},
		"container ID":      {200, "", "", []string{"CNI_CONTAINERID=not found"}, nil},
		"no interface":      {200, "", "", []string{"CNI_IFNAME="}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := serve(t, responds(tt.code, tt.body))
			_, err := plugin{command: "DEL", config: tt.config, environ: tt.environ}.run(t, socket)
			wantFailure(t, name, err)
			for _, text := range tt.texts {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("got %q; want %q in it", err, text)
				}
			}
		})
	}
	for _, socket := range []string{filepath.Join(t.TempDir(), "absent"), filepath.Join(t.TempDir(), "not found", "s")} {
		_, err := plugin{command: "DEL", impatient: true}.run(t, socket)
		wantFailure(t, socket, err)
	}
}

func FuzzDelError(f *testing.F) {
	for _, text := range []string{"not found", "nnot foundot found", "not not found found", "no such file or directoryno such file or directory", "not no such file or directoryfound", "İnot found"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, msg, details string) {
		err := delError(types.NewError(types.ErrTryAgainLater, msg, details))
		wantFailure(t, fmt.Sprintf("%q; %q", msg, details), err)
		if err.Code != types.ErrTryAgainLater {
			t.Errorf("the code changed to %d", err.Code)
		}
	})
}
