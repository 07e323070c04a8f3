package informerd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	api "informerd.io/go/informerd/v1"
)

// Queue is a worker of a group. All workers of a group, in however many processes, share one queue, as client-go's work
// queue in one process: each key is in one handler's hands at a time, and comes with the latest state of its object.
type Queue[T any] struct {
	Client *Client
	// All workers of a group must name the same resource and selection.
	Group    string
	Resource Resource
	Select   []Select
	// How many handlers run at once, by default one.
	Workers int
	// Brings the cluster from the state that is to the state that should be. On nil the key is done until its object
	// changes; on RequeueAfter it comes again after that time; on any other error it comes again after a back-off that
	// grows. The context ends when informerd has given the key to another worker.
	Handle func(ctx context.Context, item Item[T]) error
	// Called once, when every object that was there has been put into the queue, though perhaps not been handled; optional.
	Synced func()

	// Zero in programs; a test is reminded earlier.
	remind time.Duration
}

// Item is a key with what is known of it.
type Item[T any] struct {
	Namespace, Name string
	// The latest state; nil if there is no such object, or it is no longer selected.
	Object *T
	// The last state of the object that had this name before, if its deletion has not been handled yet. Together with
	// Object: it was deleted and made anew.
	Deleted *T
	// 1, and one more for each failure since the key last succeeded.
	Attempt int
}

// Key is namespace/name, or name.
func (i Item[T]) Key() string { return Key{Namespace: i.Namespace, Name: i.Name}.String() }

type requeue struct{ after time.Duration }

func (r requeue) Error() string { return fmt.Sprintf("comes again after %s", r.after) }

const longestRequeue = 365 * 24 * time.Hour

// RequeueAfter is returned by a handler that succeeded and wants the key again after some time, at most a year.
func RequeueAfter(after time.Duration) error { return requeue{after} }

// Run works until the context ends, whose error it returns, or until asking again cannot help. It returns when all handlers
// have.
func (q *Queue[T]) Run(ctx context.Context) error {
	what := fmt.Sprintf("queue %s of %s", q.Group, nameOf(selectionOf(q.Resource, nil).Resource))
	synced := sync.OnceFunc(func() {
		if q.Synced != nil {
			q.Synced()
		}
	})
	return q.Client.again(ctx, what, func(ctx context.Context, alive func()) (time.Duration, error) {
		return q.work(ctx, alive, synced)
	})
}

// One stream: while it lives, this is a worker of its group. When it ends, what was in hand goes to the others.
func (q *Queue[T]) work(ctx context.Context, alive, synced func()) (time.Duration, error) {
	var hands hands
	defer q.settle(&hands) // After the cancellation.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := api.NewQueueClient(q.Client.connection).Work(ctx)
	if err != nil {
		return 0, err
	}
	var sending sync.Mutex
	send := func(request *api.WorkRequest) {
		sending.Lock()
		defer sending.Unlock()
		_ = stream.Send(request) // Recv tells why it failed.
	}
	workers := max(q.Workers, 1)
	send(&api.WorkRequest{Action: &api.WorkRequest_Join{Join: &api.JoinGroup{
		Group: q.Group, Selections: []*api.Selection{selectionOf(q.Resource, q.Select)}, Capacity: uint32(workers),
	}}})
	for {
		response, err := stream.Recv()
		if err != nil {
			return 0, err
		}
		alive()
		switch frame := response.Frame.(type) {
		case *api.WorkResponse_Synced:
			synced()
		case *api.WorkResponse_Items:
			for _, item := range frame.Items.Items {
				key := Key{Namespace: item.Ref.Namespace, Name: item.Ref.Name}.String()
				hands.work(key, func() { send(q.handle(ctx, item)) }) // Never more than the capacity.
			}
		case *api.WorkResponse_Goodbye:
			return frame.Goodbye.RetryAfter.AsDuration(), nil
		}
	}
}

// The handlers that run, and their keys.
type hands struct {
	running sync.WaitGroup
	keys    sync.Map
}

func (h *hands) work(key string, handle func()) {
	h.keys.Store(key, nil)
	h.running.Go(func() {
		defer h.keys.Delete(key)
		handle()
	})
}

// Waits until all handlers of a stream that is over have returned. One that does not heed its context holds up the worker.
func (q *Queue[T]) settle(hands *hands) {
	returned := make(chan struct{})
	go func() {
		hands.running.Wait()
		close(returned)
	}()
	every := time.NewTicker(cmp.Or(q.remind, reminder))
	defer every.Stop()
	for {
		select {
		case <-returned:
			return
		case <-every.C:
			keys := slices.Collect(func(yield func(string) bool) {
				hands.keys.Range(func(key, _ any) bool { return yield(key.(string)) })
			})
			q.Client.logger.Warn("the stream of a queue is over, and its worker waits for handlers that have not returned",
				"group", q.Group, "handlers", len(keys), "keys", keys[:min(len(keys), 10)])
		}
	}
}

func (q *Queue[T]) handle(ctx context.Context, item *api.Item) *api.WorkRequest {
	typed := Item[T]{Namespace: item.Ref.Namespace, Name: item.Ref.Name, Attempt: int(item.Attempt)}
	err := q.decode(item, &typed)
	if err == nil {
		err = q.Handle(ctx, typed)
	}
	var again requeue
	switch {
	case err == nil:
		return &api.WorkRequest{Action: &api.WorkRequest_Done{Done: item.Ref}}
	case errors.As(err, &again):
		after := &api.AddAfter{Item: item.Ref, Delay: durationpb.New(min(max(again.after, 0), longestRequeue))}
		return &api.WorkRequest{Action: &api.WorkRequest_AddAfter{AddAfter: after}}
	}
	if ctx.Err() == nil {
		q.Client.logger.Error("a key of the queue failed, and comes again", "group", q.Group, "key", typed.Key(),
			"attempt", typed.Attempt, "error", err)
	}
	return &api.WorkRequest{Action: &api.WorkRequest_Retry{Retry: item.Ref}}
}

func (q *Queue[T]) decode(item *api.Item, into *Item[T]) (err error) {
	if item.Object != nil {
		into.Object, err = decode[T](item.Object.Object, item.Encoding)
	}
	if item.Deleted != nil && err == nil {
		into.Deleted, err = decode[T](item.Deleted.Object, item.Encoding)
	}
	return err
}
