package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// event is one line of output: a callback (ADDED, MODIFIED, DELETED), SYNCED
// once the first list has been handed to the handler, and STATE at the end.
type event struct {
	Type    string `json:"t"`
	Key     string `json:"key,omitempty"`
	UID     string `json:"uid,omitempty"`
	Version string `json:"rv,omitempty"`
	// OldVersion equals Version when a relist found the object unchanged.
	OldVersion string `json:"oldRv,omitempty"`
	// Initial marks ADDED of objects that were there from the start.
	Initial bool `json:"initial,omitempty"`
	// Unknown marks DELETED when a relist missed the object: its last state was
	// never seen, and Version is that of the last one that was.
	Unknown bool               `json:"unknown,omitempty"`
	Items   *map[string]string `json:"items,omitempty"`
	Index   *int               `json:"i,omitempty"`
}

// eventWriter prints the events of all informers, each as one line.
//
// Lines wait in memory, not in the handlers, for a slow reader: client-go drops
// the callbacks a blocked handler has not taken when an informer stops, and the
// test would miss events the informer did see.
type eventWriter struct {
	file    *os.File
	indexed bool
	mu      sync.Mutex
	pending bytes.Buffer
	wake    chan struct{} // has room for one, so that waking never blocks
	flushed chan struct{}
}

func newEventWriter(file *os.File, indexed bool) *eventWriter {
	w := &eventWriter{file: file, indexed: indexed, wake: make(chan struct{}, 1), flushed: make(chan struct{})}
	go w.copy()
	return w
}

// copy moves lines to the file until the writer is closed.
func (w *eventWriter) copy() {
	defer close(w.flushed)
	var lines bytes.Buffer
	for open := true; open; {
		_, open = <-w.wake
		w.mu.Lock()
		lines, w.pending = w.pending, lines
		w.mu.Unlock()
		if _, err := lines.WriteTo(w.file); err != nil {
			os.Exit(fail(err)) // nobody reads any more
		}
	}
}

func (w *eventWriter) write(index int, e event) {
	if w.indexed {
		e.Index = &index
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	encoder := json.NewEncoder(&w.pending)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		os.Exit(fail(err))
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// close returns once everything written has reached the file.
func (w *eventWriter) close() {
	close(w.wake)
	<-w.flushed
}

// watched is one informer whose callbacks are printed.
type watched struct {
	index        int
	out          *eventWriter
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
}

func newWatched(s *source, index int, out *eventWriter, config *rest.Config) (*watched, error) {
	informer, err := s.informer(config)
	if err != nil {
		return nil, err
	}
	w := &watched{index: index, out: out, informer: informer}
	w.registration, err = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			w.print(event{Type: "ADDED", Initial: initial}, object)
		},
		UpdateFunc: func(old, object any) {
			w.print(event{Type: "MODIFIED", OldVersion: resourceVersion(old)}, object)
		},
		DeleteFunc: func(object any) {
			e := event{Type: "DELETED"}
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				e.Unknown = true
				object = tombstone.Obj
			}
			w.print(e, object)
		},
	})
	return w, err
}

// run runs the informer until ctx ends and all its callbacks have returned.
func (w *watched) run(ctx context.Context) {
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), w.registration.HasSynced) {
			w.out.write(w.index, event{Type: "SYNCED"})
		}
	})
	w.informer.Run(ctx.Done())
	waiting.Wait()
}

func (w *watched) print(e event, object any) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		os.Exit(fail(err))
	}
	e.Key, e.UID, e.Version = objectKey(object), string(accessor.GetUID()), accessor.GetResourceVersion()
	w.out.write(w.index, e)
}

// printState prints what the store holds; call it when run has returned.
func (w *watched) printState() {
	items := map[string]string{}
	for _, object := range w.informer.GetStore().List() {
		items[objectKey(object)] = resourceVersion(object)
	}
	w.out.write(w.index, event{Type: "STATE", Items: &items})
}
