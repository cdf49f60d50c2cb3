// Command cilium-operator-ipam fills spec.ipam.pool of CiliumNodes with the allocation logic of
// cilium-operator (operator/pkg/ipam/nodemanager), as for a cloud, over a range in memory. The benchmark
// of the bridge compares both.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	operatork8s "github.com/cilium/cilium/operator/k8s"
	"github.com/cilium/cilium/operator/pkg/ipam/metrics/mock"
	"github.com/cilium/cilium/operator/pkg/ipam/nodemanager"
	"github.com/cilium/cilium/operator/watchers"
	v2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumclient "github.com/cilium/cilium/pkg/k8s/client/clientset/versioned"
	corev1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	slimclient "github.com/cilium/cilium/pkg/k8s/slim/k8s/client/clientset/versioned"
)

// parallelWorkers is the operator's default of --parallel-alloc-workers.
const parallelWorkers = 50

// settings are the flags.
type settings struct {
	kubeconfig, prefix  string
	delay, releaseDelay time.Duration
}

func main() {
	var s settings
	// Not flag.CommandLine: packages of the operator declare flags there, such as --kubeconfig.
	flags := flag.NewFlagSet("cilium-operator-ipam", flag.ExitOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig file")
	flags.StringVar(&s.prefix, "prefix", "", "begin of the names of the CiliumNodes to serve")
	flags.DurationVar(&s.delay, "delay", 0, "time of one call of the cloud, which allocates any number of addresses")
	flags.DurationVar(&s.releaseDelay, "release-delay", 180*time.Second, "excess-ip-release-delay, at least 1s")
	_ = flags.Parse(os.Args[1:]) // exits on an error
	if err := run(context.Background(), s); err != nil {
		fmt.Fprintln(os.Stderr, "cilium-operator-ipam:", err)
		os.Exit(1)
	}
}

// run serves until the process is killed.
func run(ctx context.Context, s settings) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "cilium-operator"
	config.QPS, config.Burst = 100, 200 // the operator's defaults
	client, err := ciliumclient.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := watchPods(ctx, config); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	manager, err := nodemanager.NewNodeManager(log, &cloud{delay: s.delay}, updater{client}, mock.NewMockMetrics(),
		parallelWorkers, true, int(s.releaseDelay/time.Second), false)
	if err != nil {
		return err
	}
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(client.CiliumV2().RESTClient(), "ciliumnodes", "", fields.Everything()), &v2.CiliumNode{}, 0)
	upsert := func(object any) {
		if n, ok := object.(*v2.CiliumNode); ok && strings.HasPrefix(n.Name, s.prefix) {
			manager.Upsert(n)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: upsert, UpdateFunc: func(_, n any) { upsert(n) }})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	// NodeManager.Start does this once a minute, a third of the default of the delay, which is scaled.
	for range time.Tick(s.releaseDelay / 3) {
		manager.Resync(ctx, time.Now())
	}
	return nil
}

// watchPods fills the operator's store of pods, by which it allocates for the pending ones of a node.
func watchPods(ctx context.Context, config *rest.Config) error {
	client, err := slimclient.NewForConfig(config)
	if err != nil {
		return err
	}
	informer := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything()),
		&corev1.Pod{}, 0, cache.Indexers{operatork8s.PodNodeNameIndex: operatork8s.PodNodeNameIndexFunc})
	watchers.PodStore = informer.GetIndexer()
	go informer.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	return nil
}
