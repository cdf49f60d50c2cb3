package whereabouts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/delegated-ipam/delegated-ipam/test/cluster"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// ipPool holds the fields of an IPPool.
type ipPool struct {
	Spec struct {
		Range string `json:"range"`
		// Allocations has the reservations by the offset of the address in the range.
		Allocations map[string]struct {
			ID     string `json:"id"`
			IfName string `json:"ifname"`
		} `json:"allocations"`
	} `json:"spec"`
}

func (ns *namespace) pools() dynamic.ResourceInterface {
	return ns.Resource("whereabouts.cni.cncf.io", "v1alpha1", "ippools").Namespace(ns.name)
}

// overlapping returns the names of the OverlappingRangeIPReservations, which are addresses.
func (ns *namespace) overlapping(t *testing.T) []string {
	t.Helper()
	list, err := ns.Resource("whereabouts.cni.cncf.io", "v1alpha1", "overlappingrangeipreservations").Namespace(ns.name).List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return names
}

// reservations returns the reservations of all IPPools of the namespace, by address.
func (ns *namespace) reservations() ([]oracle.Lease, error) {
	list, err := ns.pools().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []oracle.Lease
	for _, item := range list.Items {
		var pool ipPool
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pool); err != nil {
			return nil, err
		}
		prefix, err := netip.ParsePrefix(pool.Spec.Range)
		if err != nil {
			return nil, err
		}
		for text, a := range pool.Spec.Allocations {
			offset, err := strconv.ParseUint(text, 10, 32)
			if err != nil {
				return nil, err
			}
			all = append(all, oracle.Lease{Network: networkName, IP: addOffset(prefix.Addr(), offset), ContainerID: a.ID, Interface: a.IfName})
		}
	}
	slices.SortFunc(all, func(a, b oracle.Lease) int { return a.IP.Compare(b.IP) })
	return all, nil
}

// generation is the suffix of a container ID that replaces an earlier one.
var generation = regexp.MustCompile(`-g[0-9]+$`)

// listed returns the reservations with container IDs as the sidecar lists them: of generation 0.
func (ns *namespace) listed() ([]oracle.Lease, error) {
	all, err := ns.reservations()
	for i := range all {
		all[i].ContainerID = generation.ReplaceAllString(all[i].ContainerID, "")
	}
	return all, err
}

// addOffset adds an offset below 2^32 to the first address of a range.
func addOffset(first netip.Addr, offset uint64) netip.Addr {
	bytes := first.AsSlice()
	low := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)+uint32(offset))
	ip, _ := netip.AddrFromSlice(bytes)
	return ip
}

// mustReservations is reservations that fails the test.
func (ns *namespace) mustReservations(t *testing.T) []oracle.Lease {
	t.Helper()
	all, err := ns.reservations()
	harness.Must(t, err)
	return all
}

// wantReserved wants exactly these reservations, each "ADDRESS CONTAINER_ID INTERFACE".
func (ns *namespace) wantReserved(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, l := range ns.mustReservations(t) {
		got = append(got, fmt.Sprintf("%s %s %s", l.IP, l.ContainerID, l.Interface))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the IPPools have the reservations %q; want %q", got, want)
	}
}

// The status with which an update is refused. Whereabouts repeats an update that is invalid (422)
// until 10 s have elapsed, and accepts a forbidden one (403), as RBAC rules cause it, at once.
const (
	forbidden = string(metav1.StatusReasonForbidden)
	invalid   = string(metav1.StatusReasonInvalid)
)

// refuseUpdates lets an admission policy refuse each update of the IPPool of a range, and returns
// a function that deletes the policy. Both wait until the API server obeys.
func (ns *namespace) refuseUpdates(t *testing.T, subnet, reason string) (allow func()) {
	t.Helper()
	pool := ns.poolName(t, subnet)
	name := ns.name + "-" + pool
	const group = "admissionregistration.k8s.io/v1"
	policy := cluster.Object(group, "ValidatingAdmissionPolicy", name)
	policy.Object["spec"] = map[string]any{
		"matchConstraints": map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": ns.name}},
			"resourceRules": []any{map[string]any{
				"apiGroups": []any{"whereabouts.cni.cncf.io"}, "apiVersions": []any{"*"},
				"operations": []any{"UPDATE"}, "resources": []any{"ippools"}, "resourceNames": []any{pool},
			}},
		},
		"validations": []any{map[string]any{"expression": "false", "message": "refused by the test", "reason": reason}},
	}
	binding := cluster.Object(group, "ValidatingAdmissionPolicyBinding", name)
	binding.Object["spec"] = map[string]any{"policyName": name, "validationActions": []any{"Deny"}}
	for _, object := range []*unstructured.Unstructured{policy, binding} {
		harness.Must(t, ns.Create(t.Context(), object))
	}
	cluster.MustEventually(t, "the API server to refuse updates", time.Minute, func() error {
		if err := ns.tryUpdate(t, pool); string(apierrors.ReasonForError(err)) != reason {
			return fmt.Errorf("an update is answered with: %v", err)
		}
		return nil
	})
	return func() {
		t.Helper()
		bindings := ns.Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings")
		harness.Must(t, bindings.Delete(t.Context(), name, metav1.DeleteOptions{}))
		cluster.MustEventually(t, "the API server to accept updates", time.Minute, func() error { return ns.tryUpdate(t, pool) })
	}
}

// poolName returns the name of the IPPool of a range.
func (ns *namespace) poolName(t *testing.T, subnet string) string {
	t.Helper()
	list, err := ns.pools().List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	for _, item := range list.Items {
		if text, _, _ := unstructured.NestedString(item.Object, "spec", "range"); text == subnet {
			return item.GetName()
		}
	}
	t.Fatal(errors.New("no IPPool has the range " + subnet))
	return ""
}

// tryUpdate updates an IPPool without an effect.
func (ns *namespace) tryUpdate(t *testing.T, pool string) error {
	patch := []byte(`{"metadata":{"labels":{"probe":"yes"}}}`)
	_, err := ns.pools().Patch(t.Context(), pool, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
