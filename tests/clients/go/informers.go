// Informers of client-go, in all its modes at once, and what they see: an event
// per callback, SYNCED, and STATE when they are told to stop. This file is a part
// of two programs: of the client, with the newest client-go, and of the judge,
// with that of its kube-apiserver. Real clusters have both.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// line is one line of output; "i" tells the informers of one process apart.
type line struct {
	Type       string             `json:"t"`
	Key        string             `json:"key,omitempty"`
	UID        string             `json:"uid,omitempty"`
	Version    string             `json:"rv,omitempty"`
	OldVersion string             `json:"oldRv,omitempty"`
	Initial    bool               `json:"initial,omitempty"`
	Unknown    bool               `json:"unknown,omitempty"`
	Items      *map[string]string `json:"items,omitempty"`
	Index      int                `json:"i"`
}

// lines are buffered and flushed from a goroutine of its own, so that a slow
// reader never holds up a handler.
var (
	lines   = make(chan line, 1<<16)
	flushed = make(chan struct{})
)

func runInformers(args []string) int {
	flags := flag.NewFlagSet("informer", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server; without it, the in-cluster configuration")
	resource := flags.String("resource", "", "GROUP/VERSION/RESOURCE, or VERSION/RESOURCE of the core group")
	namespace := flags.String("namespace", "", "only this namespace")
	labels := flags.String("label-selector", "", "only objects with these labels")
	modes := flags.String("mode", "typed,dynamic,metadata", "comma-separated: typed, dynamic, metadata")
	check(flags.Parse(args))

	parts := strings.Split("/"+*resource, "/")
	parts = parts[max(0, len(parts)-3):]
	gvr := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	config.QPS = -1
	config.UserAgent = "client-go"
	tweak := func(o *metav1.ListOptions) { o.LabelSelector = *labels }

	go func() {
		defer close(flushed)
		out := bufio.NewWriter(os.Stdout)
		encoder := json.NewEncoder(out)
		for next := range lines {
			check(encoder.Encode(next))
			if len(lines) == 0 {
				check(out.Flush())
			}
		}
		check(out.Flush())
	}()

	ctx, cancel := context.WithCancel(context.Background())
	var all []cache.SharedIndexInformer
	var running sync.WaitGroup
	for index, mode := range strings.Split(*modes, ",") {
		informer := newInformer(mode, config, gvr, *namespace, tweak)
		handler, err := informer.AddEventHandler(handlers(index))
		check(err)
		all = append(all, informer)
		running.Go(func() { informer.Run(ctx.Done()) })
		running.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
				lines <- line{Type: "SYNCED", Index: index}
			}
		})
	}

	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	cancel()
	// One that waits to reconnect does not wake up to be stopped, and calls nobody.
	stopped := make(chan struct{})
	go func() { running.Wait(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(time.Second):
	}
	for index, informer := range all {
		items := map[string]string{}
		for _, object := range informer.GetStore().List() {
			items[keyOf(object)] = metaOf(object).GetResourceVersion()
		}
		lines <- line{Type: "STATE", Items: &items, Index: index}
	}
	close(lines)
	<-flushed
	return 0
}

func newInformer(mode string, config *rest.Config, gvr schema.GroupVersionResource, namespace string,
	tweak func(*metav1.ListOptions)) cache.SharedIndexInformer {
	switch mode {
	case "typed":
		config = rest.CopyConfig(config)
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		client, err := kubernetes.NewForConfig(config)
		check(err)
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
			informers.WithNamespace(namespace), informers.WithTweakListOptions(tweak))
		informer, err := factory.ForResource(gvr)
		check(err)
		return informer.Informer()
	case "dynamic":
		client, err := dynamic.NewForConfig(config)
		check(err)
		return dynamicinformer.NewFilteredDynamicInformer(client, gvr, namespace, 0, cache.Indexers{}, tweak).Informer()
	case "metadata":
		client, err := metadata.NewForConfig(config)
		check(err)
		return metadatainformer.NewFilteredMetadataInformer(client, gvr, namespace, 0, cache.Indexers{}, tweak).Informer()
	}
	check(fmt.Errorf("unknown mode %q", mode))
	return nil
}

func handlers(index int) cache.ResourceEventHandlerDetailedFuncs {
	say := func(l line, object any) {
		m := metaOf(object)
		l.Key, l.UID, l.Version, l.Index = keyOf(object), string(m.GetUID()), m.GetResourceVersion(), index
		lines <- l
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) { say(line{Type: "ADDED", Initial: initial}, object) },
		UpdateFunc: func(old, object any) {
			say(line{Type: "MODIFIED", OldVersion: metaOf(old).GetResourceVersion()}, object)
		},
		DeleteFunc: func(object any) {
			tombstone, unknown := object.(cache.DeletedFinalStateUnknown)
			if unknown {
				object = tombstone.Obj
			}
			say(line{Type: "DELETED", Unknown: unknown}, object)
		},
	}
}

func metaOf(object any) metav1.Object {
	accessor, err := meta.Accessor(object)
	check(err)
	return accessor
}

func keyOf(object any) string {
	key, err := cache.MetaNamespaceKeyFunc(object)
	check(err)
	return key
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}
