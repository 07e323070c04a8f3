package informerd

import (
	"context"
	"sync"
)

// Cache holds the objects of one selection, as an informer does. What it returns is shared and must not be changed.
//
// It is bounded by what is selected: each object once, decoded. Its handlers are called one after the other; while one of
// them is slow the cache falls behind, and nothing piles up.
type Cache[T any] struct {
	client   *Client
	resource Resource
	options  []Select

	// Held while an event is worked through, so that a handler that comes later misses none.
	dispatch sync.Mutex
	handlers []Handler[T]

	mutex   sync.RWMutex
	objects map[name]*T

	synced chan struct{}
	ended  chan struct{}
	err    error
}

// Handler is told of changes. Any of the functions may be missing. None of them may call AddEventHandler.
type Handler[T any] struct {
	// `initial` is true of what was there before the cache was synced, or before the handler was added.
	Added    func(object *T, initial bool)
	Modified func(old, object *T)
	// The last state that the cache had or was told.
	Deleted func(object *T)
}

// NewCache returns a cache that is empty until Run is called.
func NewCache[T any](client *Client, resource Resource, options ...Select) *Cache[T] {
	return &Cache[T]{
		client:   client,
		resource: resource,
		options:  options,
		objects:  map[name]*T{},
		synced:   make(chan struct{}),
		ended:    make(chan struct{}),
	}
}

// Run keeps the cache until the context ends, whose error it returns, or until asking again cannot help. It is called once.
func (c *Cache[T]) Run(ctx context.Context) error {
	defer close(c.ended)
	for event, err := range Watch[T](ctx, c.client, c.resource, c.options...) {
		if err != nil {
			c.err = err
			return err
		}
		c.apply(event)
	}
	c.err = ctx.Err()
	return c.err
}

func (c *Cache[T]) apply(event Event[T]) {
	c.dispatch.Lock()
	defer c.dispatch.Unlock()
	if event.Type == Synced {
		close(c.synced)
		return
	}
	id := name{event.Key.Namespace, event.Key.Name}
	c.mutex.Lock()
	old := c.objects[id]
	if event.Type == Deleted {
		delete(c.objects, id)
	} else {
		c.objects[id] = event.Object
	}
	c.mutex.Unlock()
	for _, handler := range c.handlers {
		switch {
		case event.Type == Added && handler.Added != nil:
			handler.Added(event.Object, !c.HasSynced())
		case event.Type == Modified && handler.Modified != nil:
			handler.Modified(old, event.Object)
		case event.Type == Deleted && handler.Deleted != nil:
			if event.FinalStateUnknown {
				event.Object = old
			}
			handler.Deleted(event.Object)
		}
	}
}

// AddEventHandler tells the handler of what is there, and then of every change.
func (c *Cache[T]) AddEventHandler(handler Handler[T]) {
	c.dispatch.Lock()
	defer c.dispatch.Unlock()
	if handler.Added != nil {
		for _, object := range c.List() {
			handler.Added(object, true)
		}
	}
	c.handlers = append(c.handlers, handler)
}

// HasSynced tells whether the cache has everything that was there at first, and its handlers have been told of it.
func (c *Cache[T]) HasSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// WaitForSync waits until the cache has synced. It returns the error of Run if that ends before.
func (c *Cache[T]) WaitForSync(ctx context.Context) error {
	select {
	case <-c.synced:
		return nil
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Get returns an object; the namespace is empty for types without namespaces.
func (c *Cache[T]) Get(namespace, object string) (*T, bool) {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	found, ok := c.objects[name{namespace, object}]
	return found, ok
}

// List returns all objects, in no order.
func (c *Cache[T]) List() []*T {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	all := make([]*T, 0, len(c.objects))
	for _, object := range c.objects {
		all = append(all, object)
	}
	return all
}
