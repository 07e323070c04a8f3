package informerd_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"

	informerd "informerd.io/go"
)

// What docs/clients.md shows. A test compares.

var (
	ctx    = context.Background()
	client *informerd.Client
	pods   = corev1.SchemeGroupVersion.WithResource("pods")
)

func reconcile(context.Context, *corev1.ConfigMap) error { return nil }

func ExampleCache() {
	cache := informerd.NewCache[corev1.Pod](client, pods, informerd.Namespace("default"))
	cache.AddEventHandler(informerd.Handler[corev1.Pod]{Deleted: func(pod *corev1.Pod) { fmt.Println("gone", pod.Name) }})
	go cache.Run(ctx)
	if err := cache.WaitForSync(ctx); err != nil {
		log.Fatal(err) // Also if Run has ended with an error.
	}
	pod, found := cache.Get("default", "web-1")
	fmt.Println(pod, found)
}

func ExampleQueue() {
	queue := informerd.Queue[corev1.ConfigMap]{
		Client: client, Group: "key-counter", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Workers: 4,
		Handle: func(ctx context.Context, item informerd.Item[corev1.ConfigMap]) error {
			return reconcile(ctx, item.Object) // nil if there is no such object
		},
	}
	err := queue.Run(ctx)
	fmt.Println(err)
}
