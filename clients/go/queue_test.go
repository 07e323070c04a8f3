package informerd

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	api "informerd.io/go/informerd/v1"
)

type workStream = grpc.BidiStreamingServer[api.WorkRequest, api.WorkResponse]

func items(names ...string) *api.WorkResponse {
	made := []*api.Item{}
	for _, name := range names {
		made = append(made, &api.Item{
			Ref:      &api.ItemRef{Namespace: "n", Name: name},
			Object:   &api.Object{Object: podJSON(name, name, "1")},
			Encoding: api.Encoding_ENCODING_JSON,
			Attempt:  2,
		})
	}
	return &api.WorkResponse{Frame: &api.WorkResponse_Items{Items: &api.Items{Items: made}}}
}

func joined(t *testing.T, stream workStream) {
	request, err := stream.Recv()
	join := request.GetJoin()
	if err != nil || join.GetGroup() != "g" || join.Capacity != 2 || join.Selections[0].Resource.Resource != "pods" {
		t.Errorf("%v %v", request, err)
	}
	stream.Send(&api.WorkResponse{Frame: &api.WorkResponse_Joined{Joined: &api.Joined{}}})
}

func TestEachKeyIsAnsweredAsItsHandlerSays(t *testing.T) {
	t.Parallel()
	answers := make(chan string, 10)
	server := &fake{works: []func(workStream) error{
		func(stream workStream) error {
			joined(t, stream)
			for _, name := range []string{"good", "bad", "later", "never", "before"} {
				stream.Send(items(name))
				request, err := stream.Recv()
				if err != nil {
					return err
				}
				switch action := request.Action.(type) {
				case *api.WorkRequest_Done:
					answers <- "done " + action.Done.Name
				case *api.WorkRequest_Retry:
					answers <- "retry " + action.Retry.Name
				case *api.WorkRequest_AddAfter:
					answers <- "after " + action.AddAfter.Item.Name + " " + action.AddAfter.Delay.AsDuration().String()
				}
			}
			stream.Send(&api.WorkResponse{Frame: &api.WorkResponse_Goodbye{Goodbye: &api.Goodbye{}}})
			return nil
		},
		// After a goodbye it joins again, and is told of no second sync.
		func(stream workStream) error {
			joined(t, stream)
			for range 2 {
				stream.Send(&api.WorkResponse{Frame: &api.WorkResponse_Synced{Synced: &api.Synced{}}})
			}
			return status.Error(codes.Unavailable, "cut")
		},
		func(workStream) error { return refusal(codes.NotFound, "UNKNOWN_RESOURCE") },
	}}
	client, log := server.start(t)
	synced := 0
	queue := Queue[corev1.Pod]{Client: client, Group: "g", Resource: pods, Workers: 2, Synced: func() { synced++ }}
	queue.Handle = func(_ context.Context, item Item[corev1.Pod]) error {
		if item.Object.Name != item.Name || item.Key() != "n/"+item.Name || item.Attempt != 2 {
			t.Error(item)
		}
		switch item.Name {
		case "bad":
			return errors.New("it failed")
		case "later":
			return RequeueAfter(time.Hour)
		case "never":
			return RequeueAfter(math.MaxInt64)
		case "before":
			return RequeueAfter(-time.Second)
		}
		return nil
	}
	if err := queue.Run(bounded(t)); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	next(t, answers, "done good", "retry bad", "after later 1h0m0s", "after never 8760h0m0s", "after before 0s")
	if synced != 1 || log.count("it failed") != 1 {
		t.Error(synced, log.buffer.String())
	}
}

func TestHandlersAreBoundedAndEndWithTheirStream(t *testing.T) {
	t.Parallel()
	busy := make(chan struct{}, 2)
	server := &fake{works: []func(workStream) error{
		func(stream workStream) error {
			joined(t, stream)
			stream.Send(items("a", "b"))
			<-busy
			<-busy
			return status.Error(codes.Unavailable, "cut")
		},
		func(workStream) error { return refusal(codes.PermissionDenied, "FORBIDDEN") },
	}}
	client, _ := server.start(t)
	var running atomic.Int32
	queue := Queue[corev1.Pod]{Client: client, Group: "g", Resource: pods, Workers: 2}
	queue.Handle = func(ctx context.Context, _ Item[corev1.Pod]) error {
		running.Add(1)
		defer running.Add(-1)
		busy <- struct{}{}
		<-ctx.Done()            // The keys are somebody else's now.
		time.Sleep(time.Second) // Longer than what passes before it joins again.
		return ctx.Err()
	}
	if err := queue.Run(bounded(t)); status.Code(err) != codes.PermissionDenied || running.Load() != 0 {
		t.Error(err, running.Load())
	}
}

func TestAWorkerTellsForWhichHandlersItWaits(t *testing.T) {
	t.Parallel()
	busy := make(chan struct{})
	server := &fake{works: []func(workStream) error{
		func(stream workStream) error {
			joined(t, stream)
			stream.Send(items("stuck"))
			<-busy
			return status.Error(codes.Unavailable, "cut")
		},
		func(workStream) error { return refusal(codes.PermissionDenied, "FORBIDDEN") },
	}}
	client, log := server.start(t)
	queue := Queue[corev1.Pod]{Client: client, Group: "g", Resource: pods, Workers: 2, remind: 50 * time.Millisecond}
	queue.Handle = func(ctx context.Context, _ Item[corev1.Pod]) error {
		close(busy)
		for log.count("n/stuck") < 2 {
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	}
	if err := queue.Run(bounded(t)); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}
