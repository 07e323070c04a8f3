package informerd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	api "informerd.io/go/informerd/v1"
)

func recorder(into chan<- string) Handler[corev1.Pod] {
	return Handler[corev1.Pod]{
		Added: func(pod *corev1.Pod, initial bool) { into <- fmt.Sprintf("+%s %t", pod.Name, initial) },
		Modified: func(old, pod *corev1.Pod) {
			into <- fmt.Sprintf("~%s %s %s", pod.Name, old.ResourceVersion, pod.ResourceVersion)
		},
		Deleted: func(pod *corev1.Pod) { into <- fmt.Sprintf("-%s %s", pod.Name, pod.Spec.NodeName) },
	}
}

func next(t *testing.T, from <-chan string, wanted ...string) {
	t.Helper()
	for _, one := range wanted {
		select {
		case found := <-from:
			if found != one {
				t.Errorf("%q instead of %q", found, one)
			}
		case <-bounded(t).Done():
			t.Fatalf("no %q", one)
		}
	}
}

func TestACacheHoldsWhatIsThereAndTellsItsHandlers(t *testing.T) {
	t.Parallel()
	server := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		broken(started(false), events("1", "+a1", "+b2"), snapshotEnd(), events("2", "~a3", "+c4")),
		// b went unseen.
		script(started(false), events("", "+a3", "+c4"), snapshotEnd(), events("3", "-c5")),
	}}
	client, _ := server.start(t)
	cache := NewCache[corev1.Pod](client, pods)
	if cache.HasSynced() {
		t.Error("synced before it began")
	}
	seen := make(chan string, 20)
	cache.AddEventHandler(recorder(seen))
	ctx, cancel := context.WithCancel(bounded(t))
	end := make(chan error, 1)
	go func() { end <- cache.Run(ctx) }()
	// The last state of b is the one that the cache had.
	next(t, seen, "+a true", "+b true", "~a 1 3", "+c false", "-b node-2", "-c node-5")
	if err := cache.WaitForSync(ctx); err != nil || !cache.HasSynced() {
		t.Error(err)
	}
	if pod, ok := cache.Get("n", "a"); !ok || pod.ResourceVersion != "3" || len(cache.List()) != 1 {
		t.Error(cache.List())
	}
	if _, ok := cache.Get("n", "b"); ok {
		t.Error("b is there")
	}
	late := make(chan string, 20)
	cache.AddEventHandler(recorder(late))
	next(t, late, "+a true")
	cancel()
	if err := <-end; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWhoWaitsForACacheLearnsWhyItCannotSync(t *testing.T) {
	t.Parallel()
	server := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error {
			return refusal(codes.NotFound, "UNKNOWN_RESOURCE")
		},
	}}
	client, _ := server.start(t)
	cache := NewCache[corev1.Pod](client, corev1.SchemeGroupVersion.WithResource("pod"))
	go cache.Run(bounded(t))
	if err := cache.WaitForSync(bounded(t)); err == nil || !strings.Contains(err.Error(), "watch of v1/pod:") {
		t.Error(err)
	}
}
