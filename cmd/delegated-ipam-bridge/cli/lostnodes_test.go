package cli

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestLostNodesUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--grace=0s":                "longer than a machine can run",
		"--grace=-1h":               "--grace",
		"--grace=30m":               "less than --grace",
		"--max-gap=0s":              "--max-gap",
		"--max-nodes=0":             "1 or more",
		"--extra-slots=-1":          "--extra-slots",
		"--extra-slots=1025":        "0 to 1024",
		"--namespace=":              "the name of a namespace",
		"--config-map=":             "the name of a ConfigMap",
		"--owners= --extra-slots=0": "expected one of them",
		"--whereabouts-namespace=x": "names with --whereabouts-namespace",
		"--cni-networks=pods":       "none without it",
		"--owners=a-3..1":           "FIRST..LAST",
		"--file=/a --forget=/b":     "expected one of them",
		"worker-7":                  "expected no argument",
		"--kubeconfig=/none/at":     "/none/at",
		"--forget=/none/at/this":    "",
	} {
		t.Run(args, func(t *testing.T) {
			var stdout, stderr strings.Builder
			code := Run(t.Context(), append([]string{"lost-nodes"}, strings.Fields(args)...), []string{"HOME=/none"}, &stdout, &stderr, "")
			usage := want != "/none/at" && want != ""
			if code == cmdline.ExitOK || usage != (code == cmdline.ExitUsage) || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
				t.Errorf("exit code %d, printed %q and %q; want %q", code, &stdout, &stderr, want)
			}
		})
	}
}
