// A consumer of informerd.v1.Objects: keeps the objects of one selection, and prints what changes.
//
//	go run ./consumer [-address 127.0.0.1:8001] [-namespace N] [-selector L] [GROUP/]VERSION/RESOURCE
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	api "informerd.io/go/informerd/v1"
)

func main() {
	address := flag.String("address", "127.0.0.1:8001", "where informerd listens; unix:///path for a socket")
	namespace := flag.String("namespace", "", "only this namespace")
	selector := flag.String("selector", "", "label selector")
	flag.Parse()
	path := strings.Split(flag.Arg(0), "/")
	if len(path) < 2 {
		log.Fatal("which resource? Such as v1/pods or apps/v1/deployments")
	}
	resource := &api.Resource{Version: path[len(path)-2], Resource: path[len(path)-1]}
	if len(path) == 3 {
		resource.Group = path[0]
	}

	connection, err := grpc.NewClient(*address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)), // an object may be larger than gRPC's 4 MiB
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	consumer := &consumer{client: api.NewObjectsClient(connection), objects: map[key]*api.Event{}}
	consumer.selection = &api.Selection{
		Resource: resource,
		Filters:  []*api.Filter{{Namespace: *namespace, LabelSelector: *selector}},
	}
	for ctx.Err() == nil {
		wait, err := consumer.watch(ctx)
		switch status.Code(err) {
		case codes.OK:
		case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
			log.Fatal(err) // the same request will not fare better
		default:
			log.Printf("%v, trying again", err)
			wait = time.Second
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

type key struct{ namespace, name string }

type consumer struct {
	client    api.ObjectsClient
	selection *api.Selection
	objects   map[key]*api.Event // what is there; event.Object is the object as JSON
	token     []byte             // after the last frame
	snapshot  map[key]bool       // what the snapshot had so far; nil when none is under way
}

// One watch, from the token on, until it ends. Everything that a correct consumer has to do is here.
func (c *consumer) watch(ctx context.Context) (time.Duration, error) {
	request := &api.WatchRequest{Selection: c.selection}
	if c.token != nil {
		request.Start = &api.WatchRequest_ResumeToken{ResumeToken: c.token}
	}
	stream, err := c.client.Watch(ctx, request)
	if err != nil {
		return 0, err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return 0, err // io.EOF has no status: it counts as Unknown, and is tried again
		}
		switch frame := response.Frame.(type) {
		case *api.WatchResponse_Started:
			if !frame.Started.Resumed {
				c.snapshot = map[key]bool{} // a whole snapshot follows
			}
		case *api.WatchResponse_Reset_:
			c.snapshot = map[key]bool{} // likewise: something was missed
		case *api.WatchResponse_Events:
			for _, event := range frame.Events.Events {
				c.apply(event)
			}
		case *api.WatchResponse_SnapshotEnd:
			for key, event := range c.objects {
				if !c.snapshot[key] {
					fmt.Println("DELETED", name(key), event.Key.ResourceVersion)
					delete(c.objects, key) // not in the snapshot: gone
				}
			}
			c.snapshot = nil
			fmt.Println("SYNCED", len(c.objects), response.ResourceVersion)
		case *api.WatchResponse_Goodbye:
			c.token = response.ResumeToken
			return frame.Goodbye.RetryAfter.AsDuration(), nil
		}
		c.token = response.ResumeToken // after the frame was worked on, not before
	}
}

func (c *consumer) apply(event *api.Event) {
	key := key{event.Key.Namespace, event.Key.Name}
	kind := strings.TrimPrefix(event.Type.String(), "TYPE_")
	known := c.objects[key]
	if c.snapshot != nil {
		c.snapshot[key] = true
	}
	// Over a reconnect the same may come twice.
	news := known == nil || known.Key.ResourceVersion != event.Key.ResourceVersion
	if event.Type == api.Event_TYPE_DELETED {
		news = known != nil
		delete(c.objects, key)
	} else {
		c.objects[key] = event
	}
	if news {
		fmt.Println(kind, name(key), event.Key.ResourceVersion)
	}
}

func name(key key) string {
	return strings.TrimPrefix(key.namespace+"/"+key.name, "/")
}
