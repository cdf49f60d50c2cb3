package cniconf

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func put(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	check.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		want          call.Network
	}{
		"first delegating plugin of a list": {
			"a.conflist",
			`{"name":"net","cniVersion":"0.4.0","disableCheck":true,"disableGC":true,"plugins":[
				{"type":"cilium-cni", "huge":12345678901234567890, "ipam":{"type":"host-local","x":[1, 2]}},
				{"type":"bridge","ipam":{"type":"dhcp"}}]}`,
			call.Network{
				Name: "net", CNIVersion: "0.4.0", IPAMType: "host-local", DisableCheck: true, DisableGC: true,
				PluginConfig: json.RawMessage(`{"type":"cilium-cni","huge":12345678901234567890,"ipam":{"type":"host-local","x":[1,2]}}`),
			},
		},
		"highest version of several": {
			"a.conflist",
			`{"name":"net","cniVersion":"0.3.1","cniVersions":["0.4.0","1.0.0","99.0.0"],"plugins":[{"type":"p","ipam":{"type":"i"}}]}`,
			call.Network{
				Name: "net", CNIVersion: "1.0.0", IPAMType: "i",
				PluginConfig: json.RawMessage(`{"type":"p","ipam":{"type":"i"}}`),
			},
		},
		"single plugin": {
			"a.conf",
			`{"name":"net", "cniVersion":"1.0.0", "type":"p", "ipam":{"type":"i"}}`,
			call.Network{
				Name: "net", CNIVersion: "1.0.0", IPAMType: "i",
				PluginConfig: json.RawMessage(`{"name":"net","cniVersion":"1.0.0","type":"p","ipam":{"type":"i"}}`),
			},
		},
		"single plugin in a .json file": {
			"a.json",
			`{"name":"net","type":"p","ipam":{"type":"i"}}`,
			call.Network{Name: "net", IPAMType: "i", PluginConfig: json.RawMessage(`{"name":"net","type":"p","ipam":{"type":"i"}}`)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := put(t, t.TempDir(), c.file, c.content)
			got := readCandidate(file)
			c.want.File = file
			if got.err != nil || !got.network.Equal(c.want) {
				t.Errorf("got %+v, %v\nwant %+v", got.network, got.err, c.want)
			}
		})
	}
}

func TestPluginDir(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "net/50-p.conf", `{"type":"p","ipam":{"type":"i"}}`)
	with := put(t, dir, "a.conflist", `{"name":"net","plugins":[{"type":"first"}]}`)
	without := put(t, dir, "b.conflist", `{"name":"net","plugins":[{"type":"first"}],"loadOnlyInlinedPlugins":true}`)
	if c := readCandidate(with).ofPlugin("p"); c.err != nil || c.network.IPAMType != "i" || c.network.File != with {
		t.Errorf("got %+v, %v", c.network, c.err)
	}
	if c := readCandidate(without); !errors.Is(c.err, errNoIPAM) {
		t.Errorf("got %+v, %v; want %v", c.network, c.err, errNoIPAM)
	}
	put(t, dir, "plain", "a file with the name of a network")
	if c := readCandidate(put(t, dir, "c.conflist", `{"name":"plain","plugins":[{"type":"p","ipam":{"type":"i"}}]}`)); c.err != nil {
		t.Error(c.err)
	}
}

// The network of a list has the ipam of its first plugin, of the named one, or of the one that calls the
// daemon.
func TestPluginOfList(t *testing.T) {
	const list = `{"name":"net","plugins":[{"type":"first"},{"type":"p","ipam":{"type":"i"}},{"type":"q","ipam":{"type":"j"}}]}`
	containers := strings.Replace(list, `"type":"i"`, `"type":"delegated-ipam-cni","delegate":{"type":"j"}`, 1)
	for name, c := range map[string]struct{ content, network, want, err string }{
		"not named":             {list, "net", "", `network "net", but the range of a later plugin is not that of the pods`},
		"no name at all":        {list, "", "", `network "net", but the range of a later plugin is not that of the pods`},
		"named":                 {list, "net/p", "i", ""},
		"named, the last":       {list, "net/q", "j", ""},
		"named, without ipam":   {list, "net/first", "", "no plugin of its chain sets ipam.type: none is of type first with it"},
		"named, of no network":  {list, "/q", "j", ""},
		"named in another":      {list, "other/q", "", `expected a .conflist, .conf or .json file of network "other"`},
		"that calls the daemon": {containers, "net", "j", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put(t, dir, "05.conflist", c.content)
			put(t, dir, "90-bridge.conflist", `{"name":"podman","plugins":[{"type":"bridge","ipam":{"type":"bridge"}}]}`)
			candidates, err := source{dir: dir}.read()
			check.Must(t, err)
			n, err := choose(candidates, c.network, "")
			if n.IPAMType != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %+v, %v; want %q, %q", n, err, c.want, c.err)
			}
		})
	}
}

func TestInvalidFile(t *testing.T) {
	for name, c := range map[string]struct {
		file, content, want string
	}{
		"truncated JSON":               {"a.conflist", `{"name":`, "unexpected end of JSON"},
		"empty":                        {"a.conf", ``, "unexpected end of JSON"},
		"no name":                      {"a.conflist", `{"plugins":[{"type":"p"}]}`, "no name"},
		"single plugin without a name": {"a.conf", `{"type":"p","ipam":{"type":"i"}}`, "missing network name"},
		"name outside the directory":   {"a.conflist", `{"name":"../x","plugins":[{"type":"p"}]}`, "invalid characters"},
		"no plugins":                   {"a.conflist", `{"name":"net","plugins":[]}`, "no plugins"},
		"no plugin that delegates":     {"a.conflist", `{"name":"net","plugins":[{"type":"p"}]}`, "ipam.type"},
		"ipam of a later plugin":       {"a.conflist", `{"name":"net","plugins":[{"type":"first"},{"type":"p","ipam":{"type":"i"}}]}`, "its first plugin, first, sets no ipam.type, and p does; if pods have their addresses from that, name it by --cni-network=net/p"},
		"ipam in delegates":            {"a.conf", `{"name":"net","type":"multus","delegates":[{"type":"p","ipam":{"type":"i"}}]}`, "multus runs the plugin in its key delegates"},
		"ipam for a delegate":          {"a.conflist", `{"name":"net","plugins":[{"type":"flannel","delegate":{}},{"type":"portmap"}]}`, "flannel runs the plugin in its key delegate,"},
		"list in a .conf file":         {"a.conf", `{"name":"net","plugins":[{"type":"p"}]}`, "extension .conflist"},
		"ipam of another type":         {"a.conf", `{"name":"net","type":"p","ipam":"dhcp"}`, "ipam is a JSON string; expected an object"},
		"too large":                    {"a.conf", strings.Repeat(" ", maxFile+1), "larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got := readCandidate(put(t, t.TempDir(), c.file, c.content))
			if got.err == nil || !strings.Contains(got.err.Error(), c.want) {
				t.Errorf("error %v, want …%s…", got.err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"name":"net","cniVersion":"1.0.0","plugins":[{"type":"p","ipam":{"type":"i"}}]}`))
	f.Add([]byte(`{"name":"net","type":"p","ipam":{"type":"i"}}`))
	f.Add([]byte(`{"name":"net","plugins":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for kind, parse := range map[string]func([]byte) (document, error){"list": parseList, "single": parseSingle} {
			d, err := parse(data)
			if err != nil {
				continue
			}
			n, err := d.delegatingNetwork("")
			if err != nil {
				continue
			}
			var plugin struct {
				Type string `json:"type"`
				IPAM struct {
					Type string `json:"type"`
				} `json:"ipam"`
			}
			if err := json.Unmarshal(n.PluginConfig, &plugin); err != nil {
				t.Fatalf("%s: the plugin object cannot be parsed: %v", kind, err)
			}
			if n.Name == "" || n.IPAMType == "" || plugin.Type == "" || plugin.IPAM.Type != n.IPAMType {
				t.Errorf("%s: %+v lacks a required field", kind, n)
			}
		}
	})
}
