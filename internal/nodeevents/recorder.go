package nodeevents

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// NewRecorder returns a recorder that writes Events in the background until ctx ends. component is
// the program that they name as their source, and node its node. An Event that cannot be written is
// lost. The error is that config is not valid. It needs the rights to create and to patch Events in
// the namespace "default": client-go counts a repeated Event by a patch.
func NewRecorder(ctx context.Context, config *rest.Config, component, node string) (Recorder, error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: component, Host: node}), nil
}
