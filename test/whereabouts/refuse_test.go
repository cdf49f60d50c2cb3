package whereabouts

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/cluster"
)

// refusal lets the API server refuse each update of the IPPool of a range, and returns a function
// that ends this. Both wait until the API server obeys.
type refusal func(ns *namespace, t *testing.T, subnet string) (allow func())

// forbidUpdates refuses updates with 403, as missing RBAC rules do. Whereabouts does not repeat
// them.
func forbidUpdates(ns *namespace, t *testing.T, subnet string) (allow func()) {
	return ns.refuseUpdates(t, subnet, metav1.StatusReasonForbidden)
}

// invalidateUpdates refuses updates with 422. Whereabouts repeats them until 10 s have elapsed.
func invalidateUpdates(ns *namespace, t *testing.T, subnet string) (allow func()) {
	return ns.refuseUpdates(t, subnet, metav1.StatusReasonInvalid)
}

func (ns *namespace) refuseUpdates(t *testing.T, subnet string, reason metav1.StatusReason) (allow func()) {
	t.Helper()
	pool := ns.poolName(t, subnet)
	name := ns.name + "-" + pool
	rule := poolUpdates()
	rule["resourceNames"] = []any{pool}
	ns.createAdmission(t, "ValidatingAdmissionPolicy", name, "spec", map[string]any{
		"matchConstraints": map[string]any{"namespaceSelector": ns.selector(), "resourceRules": []any{rule}},
		"validations":      []any{map[string]any{"expression": "false", "message": "refused by the test", "reason": string(reason)}},
	})
	ns.createAdmission(t, "ValidatingAdmissionPolicyBinding", name, "spec", map[string]any{"policyName": name, "validationActions": []any{"Deny"}})
	cluster.MustEventually(t, "the API server to refuse updates", time.Minute, func() error {
		if err := ns.tryUpdate(t, pool); apierrors.ReasonForError(err) != reason {
			return fmt.Errorf("an update is answered with: %v", err)
		}
		return nil
	})
	return func() { ns.allowUpdates(t, "validatingadmissionpolicybindings", name, pool) }
}

// delayUpdates does not respond to updates, by a real admission webhook, for longer than the 10 s
// that whereabouts waits.
func delayUpdates(ns *namespace, t *testing.T, subnet string) (allow func()) {
	t.Helper()
	pool := ns.poolName(t, subnet)
	var called atomic.Int64
	webhook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		called.Add(1)
		_, _ = io.Copy(io.Discard, r.Body) // until then the end of the connection is not noticed
		<-r.Context().Done()               // the API server ends the request
	}))
	t.Cleanup(webhook.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw})
	ns.createAdmission(t, "ValidatingWebhookConfiguration", ns.name, "webhooks", []any{map[string]any{
		"name": "slow.example.com", "admissionReviewVersions": []any{"v1"}, "sideEffects": "None",
		"failurePolicy": "Fail", "timeoutSeconds": int64(30),
		"clientConfig":      map[string]any{"url": webhook.URL, "caBundle": base64.StdEncoding.EncodeToString(certificate)},
		"namespaceSelector": ns.selector(),
		"rules":             []any{poolUpdates()},
		"matchConditions":   []any{map[string]any{"name": "pool", "expression": fmt.Sprintf("request.name == %q", pool)}},
	}})
	cluster.MustEventually(t, "the API server to call the webhook", time.Minute, func() error {
		if err := ns.tryUpdate(t, pool); called.Load() == 0 {
			return fmt.Errorf("the webhook was not called; an update is answered with: %v", err)
		}
		return nil
	})
	return func() { ns.allowUpdates(t, "validatingwebhookconfigurations", ns.name, pool) }
}

func (ns *namespace) createAdmission(t *testing.T, kind, name, field string, content any) {
	t.Helper()
	object := cluster.Object("admissionregistration.k8s.io/v1", kind, name)
	object.Object[field] = content
	check.Must(t, ns.Create(t.Context(), object))
}

// allowUpdates deletes such an object, and waits until the API server accepts updates.
func (ns *namespace) allowUpdates(t *testing.T, resource, name, pool string) {
	t.Helper()
	check.Must(t, ns.Resource("admissionregistration.k8s.io", "v1", resource).Delete(t.Context(), name, metav1.DeleteOptions{}))
	cluster.MustEventually(t, "the API server to accept updates", time.Minute, func() error { return ns.tryUpdate(t, pool) })
}

func (ns *namespace) selector() map[string]any {
	return map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": ns.name}}
}

func poolUpdates() map[string]any {
	return map[string]any{
		"apiGroups": []any{"whereabouts.cni.cncf.io"}, "apiVersions": []any{"*"},
		"operations": []any{"UPDATE"}, "resources": []any{"ippools"},
	}
}

func (ns *namespace) poolName(t *testing.T, subnet string) string {
	t.Helper()
	list, err := ns.pools().List(t.Context(), metav1.ListOptions{})
	check.Must(t, err)
	for _, item := range list.Items {
		if text, _, _ := unstructured.NestedString(item.Object, "spec", "range"); text == subnet {
			return item.GetName()
		}
	}
	t.Fatalf("no IPPool has the range %s", subnet)
	return ""
}

// tryUpdate updates an IPPool without an effect, within a second.
func (ns *namespace) tryUpdate(t *testing.T, pool string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	patch := []byte(`{"metadata":{"labels":{"probe":"yes"}}}`)
	_, err := ns.pools().Patch(ctx, pool, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
