package bridge

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/delegated-ipam/delegated-ipam/cmd/delegated-ipam-bridge/cli"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// manifests is the directory of the bridge's manifests. test/external/deploy tests the others.
var manifests = filepath.Join("..", "..", "deploy", "kubernetes", "base", "bridge")

func TestDaemonSet(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(manifests, "daemonset.yaml"))
	check.Must(t, err)
	var d appsv1.DaemonSet
	check.Must(t, yaml.UnmarshalStrict(data, &d))
	c := d.Spec.Template.Spec.Containers[0]
	if want := []string{"delegated-ipam-bridge"}; !slices.Equal(c.Command, want) {
		t.Errorf("the command is %v, want %v", c.Command, want)
	}
	var stderr bytes.Buffer
	if code := cli.Run(t.Context(), append(slices.Clone(c.Args), "--help"), nil, io.Discard, &stderr, ""); code != 0 {
		t.Errorf("%q: exit status %d: %s", c.Args, code, &stderr)
	}
	if e := c.Env[0]; e.Name != "K8S_NODE_NAME" || e.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("the node's name is not set from spec.nodeName: %v", e)
	}
}
