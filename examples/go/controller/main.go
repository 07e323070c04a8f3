// A controller on informerd.v1.Queue: keeps the annotation example.com/keys of every selected ConfigMap at the number of
// its keys. Any number of these processes share the work.
//
//	go run ./controller [-address 127.0.0.1:8001] [-group G] [-workers N] [-namespace N] [-selector L]
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	api "informerd.io/go/informerd/v1"
)

var (
	address   = flag.String("address", "127.0.0.1:8001", "where informerd listens")
	group     = flag.String("group", "key-counter", "workers of one group share one queue")
	workers   = flag.Int("workers", 4, "keys that are worked on at once")
	namespace = flag.String("namespace", "", "only this namespace")
	selector  = flag.String("selector", "", "label selector")
)

func main() {
	flag.Parse()
	connection, err := grpc.NewClient(*address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}))
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for ctx.Err() == nil {
		err := work(ctx, api.NewQueueClient(connection))
		switch status.Code(err) {
		case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented:
			log.Fatal(err)
		}
		log.Printf("%v, joining again", err)
		time.Sleep(time.Second)
	}
}

// One stream: while it lives, this process is a worker of its group. When it ends, what was in hand goes to the others.
func work(ctx context.Context, client api.QueueClient) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Work(ctx)
	if err != nil {
		return err
	}
	var sending sync.Mutex
	send := func(request *api.WorkRequest) {
		sending.Lock()
		defer sending.Unlock()
		stream.Send(request) // an error shows in Recv, too
	}
	send(&api.WorkRequest{Action: &api.WorkRequest_Join{Join: &api.JoinGroup{
		Group:    *group,
		Capacity: uint32(*workers),
		Selections: []*api.Selection{{
			Resource: &api.Resource{Version: "v1", Resource: "configmaps"},
			Filters:  []*api.Filter{{Namespace: *namespace, LabelSelector: *selector}},
		}},
	}}})
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, item := range response.GetItems().GetItems() {
			go func() { // never more than the capacity
				if err := reconcile(ctx, item); err != nil {
					log.Printf("%s/%s, attempt %d: %v", item.Ref.Namespace, item.Ref.Name, item.Attempt, err)
					send(&api.WorkRequest{Action: &api.WorkRequest_Retry{Retry: item.Ref}})
					return
				}
				send(&api.WorkRequest{Action: &api.WorkRequest_Done{Done: item.Ref}})
			}()
		}
		if goodbye := response.GetGoodbye(); goodbye != nil {
			return status.Error(codes.Unavailable, goodbye.Reason.String())
		}
	}
}

type configMap struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data map[string]string `json:"data"`
}

// Brings the cluster from the state that is to the state that should be. Called twice, it does nothing the second time.
func reconcile(ctx context.Context, item *api.Item) error {
	if item.Object == nil {
		fmt.Printf("gone %s/%s\n", item.Ref.Namespace, item.Ref.Name)
		return nil
	}
	var object configMap
	if err := json.Unmarshal(item.Object.Object, &object); err != nil {
		return err
	}
	keys := strconv.Itoa(len(object.Data))
	if object.Metadata.Annotations["example.com/keys"] == keys {
		return nil
	}
	// Writes go to the kube-apiserver, here through informerd's REST side.
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{"example.com/keys":%q}}}`,
		item.Object.Key.ResourceVersion, keys)
	url := fmt.Sprintf("http://%s/api/v1/namespaces/%s/configmaps/%s", *address, item.Ref.Namespace, item.Ref.Name)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewBufferString(patch))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	switch response.StatusCode {
	case http.StatusOK:
		fmt.Printf("counted %s/%s %s\n", item.Ref.Namespace, item.Ref.Name, keys)
		return nil
	case http.StatusNotFound, http.StatusConflict:
		return nil // it changed meanwhile, so it comes again
	default:
		return fmt.Errorf("%s: %s", response.Status, answer)
	}
}
