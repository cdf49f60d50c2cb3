package cli

import (
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
)

func TestLostNodesUsage(t *testing.T) {
	runLine(t, nil, "lost-nodes").wants(t, cmdline.ExitUsage, []string{"--cni-networks", "at least one name"})
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
		"--owners=a-3..1":           "FIRST..LAST",
		"--file=/a --forget=/b":     "expected one of them",
		"worker-7":                  "expected no argument",
		"--kubeconfig=/none/at":     "/none/at",
		"--forget=/none/at/this":    "no kubeconfig was found",
	} {
		t.Run(args, func(t *testing.T) {
			code := cmdline.ExitUsage
			if want == "/none/at" || want == "no kubeconfig was found" {
				code = cmdline.ExitFailed
			}
			runLine(t, []string{"HOME=/none"}, append([]string{"lost-nodes", "--cni-networks=pods"}, strings.Fields(args)...)...).wants(t, code, []string{want})
		})
	}
}
