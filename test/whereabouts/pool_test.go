package whereabouts

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

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
