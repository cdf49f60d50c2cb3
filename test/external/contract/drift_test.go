package contract

import (
	"reflect"
	"testing"

	"github.com/cilium/cilium/api/v1/client/daemon"
	"github.com/cilium/cilium/api/v1/client/ipam"
)

// Each operation has an ID of its own. Cilium's document has none, so those of Cilium's operations are the
// names in Cilium's Go client: a program finds the same ones in ours.
func TestOperationIDs(t *testing.T) {
	cilium := map[string]reflect.Type{"daemon": reflect.TypeFor[daemon.ClientService](), "ipam": reflect.TypeFor[ipam.ClientService]()}
	operations := map[string]string{}
	for name, op := range loadSwagger(t, swaggerFile).operations {
		if op.ID == "" || operations[op.ID] != "" || len(op.Tags) != 1 {
			t.Errorf("%s has the operationId %q, as %q has, and the tags %q; want another one and one tag", name, op.ID, operations[op.ID], op.Tags)
			continue
		}
		operations[op.ID] = name
		if op.Extensions[extension] == true {
			continue
		}
		if _, has := cilium[op.Tags[0]].MethodByName(op.ID); !has {
			t.Errorf("%s has the operationId %s, which is not the name of an operation in Cilium's client", name, op.ID)
		}
	}
}
