package restapi

import "github.com/delegated-ipam/delegated-ipam/pkg/attachment"

// Operations are those that the engine can refuse.
var Operations = []operation{opAllocate, opRestore, opRelease}

// Answers tells whether the table has an entry of its own for a failure.
func Answers(op operation, kind attachment.Kind) bool {
	_, ok := newRefusals()[op][kind]
	return ok
}
