// Keeps the annotation example.com/keys of every selected ConfigMap at the number of its keys. Any number of these processes
// share the work.
//
//	go run ./controller [-group G] [-workers N] [-namespace N] [-selector L]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"

	informerd "informerd.io/go"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

func main() {
	group := flag.String("group", "key-counter", "workers of one group share one queue")
	workers := flag.Int("workers", 4, "keys that are worked on at once")
	namespace := flag.String("namespace", "", "only this namespace")
	selector := flag.String("selector", "", "label selector")
	flag.Parse()
	client, err := informerd.Dial()
	if err != nil {
		log.Fatal(err)
	}
	config, err := informerd.Config() // Writes go to the kube-apiserver, through informerd.
	if err != nil {
		log.Fatal(err)
	}
	config.QPS = -1 // The queue bounds retries.
	counter := counter{kubernetes.NewForConfigOrDie(config)}
	queue := informerd.Queue[corev1.ConfigMap]{
		Client:   client,
		Group:    *group,
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Select:   []informerd.Select{informerd.Namespace(*namespace), informerd.Labels(*selector)},
		Workers:  *workers,
		Handle:   counter.reconcile,
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	log.Fatal(queue.Run(ctx))
}

type counter struct{ cluster kubernetes.Interface }

// Brings the cluster from the state that is to the state that should be. Called twice, it does nothing the second time.
func (c counter) reconcile(ctx context.Context, item informerd.Item[corev1.ConfigMap]) error {
	if item.Object == nil {
		fmt.Println("gone", item.Key())
		return nil
	}
	keys := strconv.Itoa(len(item.Object.Data))
	if item.Object.Annotations["example.com/keys"] == keys {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{"example.com/keys":%q}}}`,
		item.Object.ResourceVersion, keys)
	_, err := c.cluster.CoreV1().ConfigMaps(item.Namespace).Patch(ctx, item.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // It changed meanwhile, so it comes again.
	}
	if err == nil {
		fmt.Println("counted", item.Key(), keys)
	}
	return err
}
