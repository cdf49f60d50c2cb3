package plugin

import (
	"fmt"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// CommandLine returns a shell command that makes a call by hand: the executable with the same CNI
// variables and the same standard input. Other variables (--plugin-env) are those of the shell, so
// that no secret is printed. If the call cannot be made, it returns a comment with the reason.
func (r *Runner) CommandLine(verb string, c call.Call) string {
	x := r.execution(verb, c)
	args, stdin, err := x.prepare(&c)
	if err != nil {
		return fmt.Sprintf("# %s of container ID %s cannot be run: %v", verb, c.ContainerID, err)
	}
	env := x.environment(c, args)
	env.common = nil
	var vars []string
	for _, v := range env.list() {
		vars = append(vars, shellQuote(v))
	}
	return fmt.Sprintf("printf %%s %s | env %s %s", shellQuote(string(stdin)), strings.Join(vars, " "), shellQuote(c.Invocation.Binary))
}

// shellQuote returns text as one word of a POSIX shell.
func shellQuote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
