// Package fleet reads the objects of all nodes of a cluster from the API server, keeps the history of its
// Nodes there, and removes an installation.
package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/audit"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/lostnodes"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
)

// The pods of the bridge have the label nameLabel with the value bridgeName.
const nameLabel, bridgeName = "app.kubernetes.io/name", "delegated-ipam-bridge"

// Cluster reads the objects of a cluster. It needs only the right to list them, except for an Uninstall.
type Cluster struct {
	core typedcorev1.CoreV1Interface
	apps typedappsv1.AppsV1Interface
	// dynamic reads objects of other projects.
	dynamic dynamic.Interface
}

func New(config *rest.Config) (*Cluster, error) {
	core, err := typedcorev1.NewForConfig(kube.Protobuf(config))
	if err != nil {
		return nil, err
	}
	apps, err := typedappsv1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	others, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{core, apps, others}, nil
}

// CiliumNodes calls each for every CiliumNode. begin returns each, and is called again when the list
// starts again because it has expired.
func (c *Cluster) CiliumNodes(ctx context.Context, begin func() (each func(*ciliumnode.Node))) error {
	r := ciliumnode.Resource()
	err := parts(ctx, c, runtime.ContentTypeJSON, path.Join("/apis", r.Group, r.Version, r.Resource), begin)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server has no CiliumNodes (%s); expected a cluster with Cilium: %w", r.GroupVersion(), err)
	}
	return describe("CiliumNodes", err)
}

// partList is a list of objects of which only the fields of T are decoded.
type partList[T any] struct {
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// parts calls each for every object at a path of the API, in a form of JSON. begin is as in CiliumNodes.
func parts[T any](ctx context.Context, c *Cluster, accept, uri string, begin func() (each func(*T))) error {
	var each func(*T)
	return pages(ctx, func(ctx context.Context, o metav1.ListOptions) (*partList[T], error) {
		result := c.apps.RESTClient().Get().AbsPath(uri).SetHeader("Accept", accept).
			Param("limit", strconv.FormatInt(o.Limit, 10)).Param("continue", o.Continue).Do(ctx)
		body, err := result.Raw()
		if err = cmp.Or(result.Error(), err); err != nil { // the first has the reason of the API server, which Raw drops
			return nil, err
		}
		list := &partList[T]{}
		return list, json.Unmarshal(body, list)
	}, func() { each = begin() }, func(list *partList[T]) {
		for i := range list.Items {
			each(&list.Items[i])
		}
	})
}

// Pools returns the pool of every CiliumNode by name, without impossible slots.
func (c *Cluster) Pools(ctx context.Context) (map[string]lostnodes.NodePool, error) {
	pools := map[string]lostnodes.NodePool{}
	return pools, c.CiliumNodes(ctx, func() func(*ciliumnode.Node) {
		clear(pools)
		return func(n *ciliumnode.Node) {
			var p lostnodes.NodePool
			for _, a := range n.Spec.IPAM.Pool {
				if slot, ok := a.Slot(); ok && slot < lostnodes.MaxSlots {
					p.Slots = max(p.Slots, slot+1)
				}
			}
			for _, owner := range n.Metadata.OwnerReferences {
				if owner.Kind == "Node" {
					p.NodeUID = string(owner.UID)
				}
			}
			pools[n.Metadata.Name] = p
		}
	})
}

// NodeUIDs returns the UID of every Node by name. Only the metadata is read.
func (c *Cluster) NodeUIDs(ctx context.Context) (map[string]string, error) {
	uids := map[string]string{}
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	return uids, describe("Nodes", parts(ctx, c, accept, "/api/v1/nodes", func() func(*metav1.PartialObjectMetadata) {
		clear(uids)
		return func(n *metav1.PartialObjectMetadata) { uids[n.Name] = string(n.UID) }
	}))
}

// Nodes returns the pod CIDRs of every Node by name.
func (c *Cluster) Nodes(ctx context.Context) (map[string][]string, error) {
	nodes := map[string][]string{}
	return nodes, describe("Nodes", pages(ctx, c.core.Nodes().List, func() { clear(nodes) }, func(list *corev1.NodeList) {
		for i := range list.Items {
			nodes[list.Items[i].Name] = list.Items[i].Spec.PodCIDRs
		}
	}))
}

// Pods returns the bridge pods of all namespaces, and the addresses of pods without hostNetwork, which a pod has
// before it runs. Pods that have ended are left out.
func (c *Cluster) Pods(ctx context.Context) (bridges []audit.Pod, addresses []audit.PodAddress, err error) {
	reset := func() { bridges, addresses = nil, nil }
	err = pages(ctx, c.core.Pods(metav1.NamespaceAll).List, reset, func(list *corev1.PodList) {
		for i := range list.Items {
			p := &list.Items[i]
			if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				continue
			}
			name := p.Namespace + "/" + p.Name
			since := cmp.Or(p.Status.StartTime, &metav1.Time{}).Time
			if p.Labels[nameLabel] == bridgeName {
				bridges = append(bridges, audit.Pod{Name: name, Node: p.Spec.NodeName, Ready: isReady(p), Since: since})
			}
			if p.Spec.HostNetwork {
				continue
			}
			for _, of := range p.Status.PodIPs {
				if ip, _ := ciliumnode.ParseAddress(of.IP); ip.IsValid() {
					addresses = append(addresses, audit.PodAddress{Pod: name, Node: p.Spec.NodeName, IP: ip, Since: since, Ready: isReady(p)})
				}
			}
		}
	})
	return bridges, addresses, describe("pods", err)
}

// ipPool is the used part of an IPPool of whereabouts.
type ipPool struct {
	Spec struct {
		Allocations map[string]struct {
			ID string `json:"id"`
		} `json:"allocations"`
	} `json:"spec"`
}

// IPPools returns a function that lists the container IDs of all reservations of whereabouts: those in
// the IPPools of a namespace. A namespace without an IPPool is an error: it may be the wrong one.
func (c *Cluster) IPPools(namespace string) func(context.Context) (map[string]bool, error) {
	pools := c.dynamic.Resource(schema.GroupVersionResource{Group: "whereabouts.cni.cncf.io", Version: "v1alpha1", Resource: "ippools"}).Namespace(namespace)
	return func(ctx context.Context) (map[string]bool, error) {
		var ids map[string]bool
		var found int
		var malformed error
		err := pages(ctx, pools.List, func() { ids, found, malformed = map[string]bool{}, 0, nil }, func(list *unstructured.UnstructuredList) {
			for _, item := range list.Items {
				found++
				var pool ipPool
				err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pool)
				for offset, a := range pool.Spec.Allocations {
					if ids[a.ID] = true; a.ID == "" {
						err = fmt.Errorf("allocation %s has no id", offset)
					}
				}
				if err != nil {
					malformed = fmt.Errorf("IPPool %s: %w", item.GetName(), err)
				}
			}
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("list IPPools of namespace %s: %w", namespace, err)
		case found == 0:
			return nil, fmt.Errorf("namespace %s has no IPPool; expected the namespace of whereabouts' IPPools, by --whereabouts-namespace", namespace)
		case malformed != nil:
			return nil, malformed
		}
		return ids, nil
	}
}

func isReady(p *corev1.Pod) bool {
	ready := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, ready)
}

// describe adds the listed objects and the remedy to an error.
func describe(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("list %s: %w; the ClusterRole delegated-ipam-audit has the necessary rights (docs/operate/bridge.md)", what, err)
	}
	return fmt.Errorf("list %s: %w", what, err)
}

const (
	pageSize = 500
	// maxRestarts limits how often one list starts again. Its pages are of one resource version, which
	// the API server keeps for about five minutes.
	maxRestarts = 3
)

// pages lists all objects of a kind, page by page, and drops each page before the next. Its pages are
// of one resource version; if that expires it starts again. reset is called at each start, and each
// gets the pages.
// client-go's pager is not used: it buffers pages, and does not start again.
func pages[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), reset func(), each func(L)) error {
	restarts, token := 0, ""
	for {
		if token == "" {
			reset()
		}
		page, err := list(ctx, metav1.ListOptions{Limit: pageSize, Continue: token})
		switch {
		case apierrors.IsResourceExpired(err) && token != "":
			if restarts++; restarts > maxRestarts {
				return fmt.Errorf("the list has expired %d times before its end: %w", restarts, err)
			}
			token = ""
			continue
		case err != nil:
			return err
		}
		each(page)
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}

// History keeps a lostnodes.History in a ConfigMap, with a key for each node. A ConfigMap has room for
// about 10,000 nodes.
type History struct {
	ConfigMaps typedcorev1.ConfigMapInterface
	// Name is the name of the ConfigMap, which must exist.
	Name string
}

// History returns the history in a ConfigMap, which needs the rights to get and update it.
func (c *Cluster) History(namespace, name string) History {
	return History{c.core.ConfigMaps(namespace), name}
}

// Update replaces the history by the result of change, which is called again after a write of
// another process since the read. An equal history is not written.
func (s History) Update(ctx context.Context, change func(lostnodes.History) lostnodes.History) (after lostnodes.History, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		stored, err := s.ConfigMaps.Get(ctx, s.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w; expected an empty one before the first run: deploy/kubernetes/overlays/reclaim has it", err)
		}
		if err != nil {
			return err
		}
		before := lostnodes.History{}
		for name, text := range stored.Data {
			var e lostnodes.Entry
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return fmt.Errorf("ConfigMap %s: key %s: %w; remove the key, which forgets the node if it is lost", s.Name, name, err)
			}
			before[name] = e
		}
		after = change(before)
		data := map[string]string{}
		for name, e := range after {
			text, err := json.Marshal(e)
			if err != nil {
				return err
			}
			data[name] = string(text)
		}
		if maps.Equal(data, stored.Data) {
			return nil
		}
		stored.Data = data
		_, err = s.ConfigMaps.Update(ctx, stored, metav1.UpdateOptions{})
		return err
	})
	return after, err
}
