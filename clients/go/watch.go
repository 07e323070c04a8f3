package informerd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "informerd.io/go/informerd/v1"
)

// Bookmarks come every minute: a stream that says nothing for so much longer is broken.
const silence = 3 * time.Minute

// Type is what has become of an object.
type Type string

const (
	Added    Type = "ADDED"
	Modified Type = "MODIFIED"
	Deleted  Type = "DELETED"
	// Synced comes once, when all objects that were there at first have been told. It is of no object.
	Synced Type = "SYNCED"
)

// Key tells objects apart.
type Key struct {
	Namespace, Name, UID, ResourceVersion string
}

// String is namespace/name, or name.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Event is one change.
type Event[T any] struct {
	Type Type
	Key  Key
	// The object; of one that was deleted, its last state.
	Object *T
	// The object was deleted while this watch was interrupted: its last state is not known, and Object has nothing but the
	// metadata of Key.
	FinalStateUnknown bool
}

// Watch ranges over the objects of a selection as Added, Synced, and then over every change, each once. It goes on when the
// connection is lost, informerd is restarted, or the way back is no longer known; what was deleted in between is told then.
// The range ends with the context, or with one error that asking again does not help against, such as a misspelt resource.
//
// A loop body that is slow delays this watch alone, and is told of everything as long as informerd's window reaches back,
// and of the difference after that. The watch itself keeps a few words for each object.
func Watch[T any](ctx context.Context, client *Client, resource Resource, options ...Select) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		w := &watch{client: client, selection: selectionOf(resource, options), held: map[name]version{}}
		stopped := false
		w.emit = func(kind Type, key Key, data []byte) error {
			event := Event[T]{Type: kind, Key: key, FinalStateUnknown: kind == Deleted && data == nil}
			var err error
			switch {
			case event.FinalStateUnknown:
				event.Object, err = remains[T](key)
			case kind != Synced:
				event.Object, err = decode[T](data, w.encoding)
			}
			if err != nil {
				return &final{fmt.Errorf("%s %s: %w", nameOf(w.selection.Resource), key, err)}
			}
			if !yield(event, nil) {
				stopped = true
				return &final{errors.New("stopped")}
			}
			return nil
		}
		err := client.again(ctx, "watch of "+nameOf(w.selection.Resource), w.stream)
		if !stopped && ctx.Err() == nil {
			yield(Event[T]{}, err)
		}
	}
}

type name struct{ namespace, name string }

type version struct{ uid, resourceVersion string }

type watch struct {
	client    *Client
	selection *api.Selection
	// Without data it is of an object that went unseen.
	emit     func(kind Type, key Key, data []byte) error
	encoding api.Encoding
	// What its consumer knows.
	held   map[name]version
	synced bool
	// What the snapshot had so far; nil when none is under way.
	snapshot map[name]bool
	// After the last frame that was worked through.
	token []byte
}

// One stream, from the token on.
func (w *watch) stream(ctx context.Context, alive func()) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	request := &api.WatchRequest{Selection: w.selection}
	if w.token != nil {
		request.Start = &api.WatchRequest_ResumeToken{ResumeToken: w.token}
	}
	stream, err := api.NewObjectsClient(w.client.connection).Watch(ctx, request)
	if err != nil {
		return 0, err
	}
	broken := time.AfterFunc(silence, func() { cancel(errors.New("nothing was heard for too long")) })
	defer broken.Stop()
	for {
		broken.Reset(silence)
		response, err := stream.Recv()
		if err != nil {
			return 0, w.failed(ctx, err)
		}
		broken.Stop() // The consumer may take its time.
		alive()
		wait, over, err := w.frame(response)
		if over || err != nil {
			return wait, err
		}
	}
}

func (w *watch) failed(ctx context.Context, err error) error {
	code := status.Code(err)
	if said, _ := detailsOf(err); said != nil && w.token != nil && (code == codes.InvalidArgument || code == codes.OutOfRange) {
		// Perhaps it is the token, which is of another cluster. A request that is wrong without one is wrong for good.
		w.token = nil
		return status.Error(codes.Aborted, "the watch begins anew: "+err.Error())
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (w *watch) frame(response *api.WatchResponse) (wait time.Duration, over bool, err error) {
	switch frame := response.Frame.(type) {
	case *api.WatchResponse_Started:
		w.encoding = frame.Started.Encoding
		if !frame.Started.Resumed {
			w.snapshot = map[name]bool{}
		}
	case *api.WatchResponse_Reset_:
		w.snapshot = map[name]bool{}
	case *api.WatchResponse_Events:
		for _, event := range frame.Events.Events {
			if err := w.event(event); err != nil {
				return 0, true, err
			}
		}
	case *api.WatchResponse_SnapshotEnd:
		if err := w.complete(); err != nil {
			return 0, true, err
		}
	case *api.WatchResponse_Goodbye:
		wait, over = frame.Goodbye.RetryAfter.AsDuration(), true
	}
	w.token = response.ResumeToken // After the frame was worked through, not before.
	return wait, over, nil
}

// What the consumer knows already is not told again: over a reconnect a frame may come twice, and a snapshot has everything.
func (w *watch) event(event *api.Event) error {
	id := name{event.Key.Namespace, event.Key.Name}
	key := Key{event.Key.Namespace, event.Key.Name, event.Key.Uid, event.Key.ResourceVersion}
	held, known := w.held[id]
	if event.Type == api.Event_TYPE_DELETED {
		if !known {
			return nil
		}
		delete(w.held, id)
		return w.emit(Deleted, key, event.Object)
	}
	if w.snapshot != nil {
		w.snapshot[id] = true
	}
	if known && held.uid != key.UID {
		// It was deleted and made anew while nobody looked.
		delete(w.held, id)
		if err := w.emit(Deleted, Key{id.namespace, id.name, held.uid, held.resourceVersion}, nil); err != nil {
			return err
		}
		known = false
	}
	if known && held.resourceVersion == key.ResourceVersion {
		return nil
	}
	w.held[id] = version{key.UID, key.ResourceVersion}
	if known {
		return w.emit(Modified, key, event.Object)
	}
	return w.emit(Added, key, event.Object)
}

// The snapshot is complete: what it had not is gone.
func (w *watch) complete() error {
	for id, held := range w.held {
		if w.snapshot != nil && !w.snapshot[id] {
			delete(w.held, id)
			if err := w.emit(Deleted, Key{id.namespace, id.name, held.uid, held.resourceVersion}, nil); err != nil {
				return err
			}
		}
	}
	w.snapshot = nil
	if w.synced {
		return nil
	}
	w.synced = true
	return w.emit(Synced, Key{}, nil)
}
