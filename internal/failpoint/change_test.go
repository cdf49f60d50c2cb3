package failpoint_test

import (
	"go/ast"
	"slices"
	"strings"
)

// harmless are the functions of these packages that do not change a disk. Every other function of
// them counts as a change.
var harmless = map[string][]string{
	"os": {
		"Environ", "Exit", "Getegid", "Getenv", "Geteuid", "Getgroups", "Getpid", "Hostname", "LookupEnv", "Lstat", "NewFile", "NewSyscallError",
		"Open", "Pipe", "ReadDir", "ReadFile", "Readlink", "SameFile", "Stat",
	},
	"syscall": {"Flock"},
	"unix": {
		"Capget", "Close", "Faccessat", "FcntlFlock", "Flock", "Fstat", "Fstatat", "Getpgid", "Getpgrp", "Getpid", "Getrlimit", "GetsockoptInt", "GetsockoptUcred", "Gettid", "IoctlGetInt", "Kill",
		"Major", "MemfdCreate", "Minor", "Read", "SetNonblock", "Stat", "Statfs", "Statx", "Wait4",
	},
	"renameio": nil,
	// Of this module.
	"files": {"AtPath", "Cause", "In", "MountIDOf", "MountOf", "OpenIn", "Read", "ReadIn", "TemporaryFiles", "WithRemedy", "WithoutPath"},
}

// changing are the methods that change a file or a directory.
var changing = []string{
	"Chmod", "Chown", "Chtimes", "Cleanup", "CloseAtomicallyReplace", "Create", "Encode", "Flush", "Lchown", "Link",
	"Mkdir", "MkdirAll", "OpenFile", "ReadFrom", "Remove", "RemoveAll", "Rename", "Symlink", "Sync", "Truncate",
	"Write", "WriteAt", "WriteFile", "WriteString", "WriteTo",
}

// isChange reports whether a call itself changes the disk.
func (p *source) isChange(f function, c *ast.CallExpr) bool {
	name, receiver := f.callee(c)
	calm, ofDisk := harmless[receiver]
	switch {
	case onlyReads(c):
		return false
	case ofDisk && name == "OpenRoot":
		// Its changes are methods.
		return !p.methods
	case ofDisk:
		return !slices.Contains(calm, name)
	case !p.methods:
		return false
	case receiver == "fmt":
		return strings.HasPrefix(name, "Fprint")
	case receiver == "io":
		return strings.HasPrefix(name, "Copy") || name == "WriteString"
	default:
		return receiver == "expr" && slices.Contains(changing, name)
	}
}

// onlyReads reports whether a file is opened with flags that change nothing.
func onlyReads(c *ast.CallExpr) bool {
	reads, writes := false, false
	for _, arg := range c.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				reads = reads || id.Name == "O_RDONLY" || id.Name == "O_PATH"
				writes = writes || id.Name == "O_CREATE" || id.Name == "O_CREAT" || id.Name == "O_TRUNC"
			}
			return true
		})
	}
	return reads && !writes
}
