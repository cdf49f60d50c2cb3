package sandboxes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/logging"
)

const (
	// maxResponse is the kubelet's limit of a response in bytes. The default of gRPC is less than a list can
	// have.
	maxResponse = 16 << 20
	// maxRuntime is less than the length of "runtime" in swagger.yaml.
	maxRuntime = 200
	// podUIDLabel is the label by which the kubelet finds the sandboxes of a pod.
	podUIDLabel = "io.kubernetes.pod.uid"
)

// runtimeService has the operations that are used, of the many of a runtime.
type runtimeService interface {
	Version(context.Context, *cri.VersionRequest, ...grpc.CallOption) (*cri.VersionResponse, error)
	ListPodSandbox(context.Context, *cri.ListPodSandboxRequest, ...grpc.CallOption) (*cri.ListPodSandboxResponse, error)
}

// list returns the whole list of the runtime, by a new connection: one that is kept waits after a failure,
// up to two minutes.
func (r *reporter) list(ctx context.Context) (*models.CNISandboxes, error) {
	conn, err := grpc.NewClient(r.CRISocket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)))
	if err != nil {
		return nil, fmt.Errorf("--cri-socket is %q; expected the path of a unix socket: %w", r.CRISocket, err)
	}
	defer conn.Close()
	var service runtimeService = cri.NewRuntimeServiceClient(conn)
	version, err := call(ctx, r, service.Version, &cri.VersionRequest{})
	if err != nil {
		return nil, err
	}
	all, err := call(ctx, r, service.ListPodSandbox, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	return r.check(version, all.GetItems())
}

// check returns the report of a list that is not partial.
func (r *reporter) check(version *cri.VersionResponse, all []*cri.PodSandbox) (*models.CNISandboxes, error) {
	name := logging.OneLine(version.GetRuntimeName() + " " + version.GetRuntimeVersion())
	report := &models.CNISandboxes{Runtime: cmp.Or(logging.Shorten(name, maxRuntime), "unknown")}
	for _, s := range all {
		report.Sandboxes = append(report.Sandboxes, s.GetId())
	}
	own := func(s *cri.PodSandbox) bool {
		return s.GetMetadata().GetUid() == r.PodUID || s.GetLabels()[podUIDLabel] == r.PodUID
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("the container runtime at %s has no pod sandbox; expected at least one. If the node has pods, set --cri-socket to the runtime of its kubelet", r.CRISocket)
	case r.PodUID != "" && !slices.ContainsFunc(all, own):
		return nil, fmt.Errorf("the container runtime at %s has %d pod sandboxes, and none with the UID %q of this pod; expected all. Set --cri-socket to the runtime of the node's kubelet, and --pod-uid to metadata.uid",
			r.CRISocket, len(all), r.PodUID)
	}
	return report, nil
}

// call calls an operation of the runtime.
func call[Request, Response any](ctx context.Context, r *reporter, operation func(context.Context, Request, ...grpc.CallOption) (Response, error), request Request) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	response, err := operation(ctx, request)
	if err == nil {
		return response, nil
	}
	failed := status.Convert(err)
	remedy := "see its log"
	switch failed.Code() {
	case codes.Unavailable:
		remedy = "start it, or set --cri-socket to its socket"
	case codes.DeadlineExceeded:
		return response, fmt.Errorf("no answer from the container runtime at %s within %s; %s", r.CRISocket, r.limit, remedy)
	case codes.Unimplemented:
		remedy = "expected version v1 of CRI: update the runtime, or set --cri-socket to its socket"
	}
	return response, fmt.Errorf("the container runtime at %s: %s; %s", r.CRISocket, strings.TrimSuffix(failed.Message(), "."), remedy)
}
