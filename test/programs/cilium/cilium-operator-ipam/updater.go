package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/k8s/client/clientset/versioned"
)

// updater writes CiliumNodes as cilium-operator does (operator/cmd, ciliumNodeUpdateImplementation).
type updater struct{ client versioned.Interface }

func (u updater) Create(n *v2.CiliumNode) (*v2.CiliumNode, error) {
	return u.client.CiliumV2().CiliumNodes().Create(context.Background(), n, metav1.CreateOptions{})
}

func (u updater) Get(name string) (*v2.CiliumNode, error) {
	return u.client.CiliumV2().CiliumNodes().Get(context.Background(), name, metav1.GetOptions{})
}

func (u updater) UpdateStatus(before, n *v2.CiliumNode) (*v2.CiliumNode, error) {
	if before != nil && before.Status.DeepEqual(&n.Status) {
		return nil, nil
	}
	return u.client.CiliumV2().CiliumNodes().UpdateStatus(context.Background(), n, metav1.UpdateOptions{})
}

func (u updater) Update(before, n *v2.CiliumNode) (*v2.CiliumNode, error) {
	if before != nil && before.Spec.DeepEqual(&n.Spec) {
		return nil, nil
	}
	return u.client.CiliumV2().CiliumNodes().Update(context.Background(), n, metav1.UpdateOptions{})
}
