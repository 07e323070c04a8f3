package informerd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	api "informerd.io/go/informerd/v1"
)

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// A server that answers the first call with the first script, the second with the second, and holds the last one open.
type fake struct {
	api.UnimplementedObjectsServer
	api.UnimplementedQueueServer
	watches []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error
	works   []func(grpc.BidiStreamingServer[api.WorkRequest, api.WorkResponse]) error
	mutex   sync.Mutex
	calls   int
}

func (f *fake) next() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.calls++
	return f.calls - 1
}

func (f *fake) Watch(request *api.WatchRequest, stream grpc.ServerStreamingServer[api.WatchResponse]) error {
	call := f.next()
	if call < len(f.watches) {
		if err := f.watches[call](request, stream); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (f *fake) Work(stream grpc.BidiStreamingServer[api.WorkRequest, api.WorkResponse]) error {
	return f.works[f.next()](stream)
}

// Log lines, to be counted.
type lines struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.Write(line)
}

func (l *lines) count(of string) int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return strings.Count(l.buffer.String(), of)
}

func (f *fake) start(t *testing.T) (*Client, *lines) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	api.RegisterObjectsServer(server, f)
	api.RegisterQueueServer(server, f)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	log := &lines{}
	client, err := New(&rest.Config{Host: "http://192.0.2.1:8001"},
		WithLogger(slog.New(slog.NewTextHandler(log, nil))),
		WithDialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		})))
	if err != nil {
		t.Fatal(err)
	}
	client.connection.Connect()
	t.Cleanup(func() { client.Close() })
	return client, log
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func refusal(code codes.Code, reason string) error {
	refused, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Domain: "informerd.io", Reason: reason})
	if err != nil {
		panic(err)
	}
	return refused.Err()
}

func started(resumed bool) *api.WatchResponse {
	return &api.WatchResponse{Frame: &api.WatchResponse_Started{Started: &api.Started{
		Resumed: resumed, Encoding: api.Encoding_ENCODING_JSON,
	}}}
}

func reset() *api.WatchResponse {
	return &api.WatchResponse{Frame: &api.WatchResponse_Reset_{Reset_: &api.Reset{}}}
}

func snapshotEnd() *api.WatchResponse {
	return &api.WatchResponse{ResumeToken: []byte("snapshot"), Frame: &api.WatchResponse_SnapshotEnd{SnapshotEnd: &api.SnapshotEnd{}}}
}

// "+a1" "~a2" "-a3": what happened to object a at which revision; "+a1/x": of the uid x.
func events(token string, all ...string) *api.WatchResponse {
	made := []*api.Event{}
	for _, one := range all {
		one, uid, found := strings.Cut(one, "/")
		if !found {
			uid = one[1:2]
		}
		object, version := one[1:2], one[2:]
		kind := map[byte]api.Event_Type{
			'+': api.Event_TYPE_ADDED, '~': api.Event_TYPE_MODIFIED, '-': api.Event_TYPE_DELETED,
		}[one[0]]
		made = append(made, &api.Event{
			Type:   kind,
			Key:    &api.Key{Namespace: "n", Name: object, Uid: uid, ResourceVersion: version},
			Object: podJSON(object, uid, version),
		})
	}
	return &api.WatchResponse{ResumeToken: []byte(token), Frame: &api.WatchResponse_Events{Events: &api.Events{Events: made}}}
}

func podJSON(name, uid, version string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"n","name":%q,"uid":%q,`+
		`"resourceVersion":%q},"spec":{"nodeName":"node-%s"}}`, name, uid, version, version)
}

func script(of ...*api.WatchResponse) func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error {
	return func(_ *api.WatchRequest, stream grpc.ServerStreamingServer[api.WatchResponse]) error {
		for _, frame := range of {
			if err := stream.Send(frame); err != nil {
				return err
			}
		}
		return nil
	}
}

func broken(of ...*api.WatchResponse) func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error {
	return func(request *api.WatchRequest, stream grpc.ServerStreamingServer[api.WatchResponse]) error {
		if err := script(of...)(request, stream); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "cut")
	}
}
