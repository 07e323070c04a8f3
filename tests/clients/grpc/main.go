// Prints what informerd.v1.Objects says of one selection, object bytes and all: every event of a watch from -from on until
// the object named "last" comes, and then a list. After every -cut events the call is dropped and resumed by its token.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	api "informerd.io/go/informerd/v1"
)

var out = bufio.NewWriter(os.Stdout)

func main() {
	address := flag.String("address", "", "host and port")
	namespace := flag.String("namespace", "", "only this namespace")
	selector := flag.String("selector", "", "label selector")
	encoding := flag.String("encoding", "JSON", "JSON or KUBE_PROTOBUF")
	from := flag.String("from", "", "resourceVersion to begin after")
	cut := flag.Int("cut", 0, "events between two reconnects")
	flag.Parse()
	connection, err := grpc.NewClient(*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	client := api.NewObjectsClient(connection)
	wanted := api.Encoding(api.Encoding_value["ENCODING_"+*encoding])
	selection := &api.Selection{
		Resource: &api.Resource{Version: "v1", Resource: flag.Arg(0)},
		Filters:  []*api.Filter{{Namespace: *namespace, LabelSelector: *selector}},
		Encoding: wanted,
	}
	request := &api.WatchRequest{
		Selection: selection,
		Start:     &api.WatchRequest_FromResourceVersion{FromResourceVersion: *from},
	}
	for request != nil {
		request = watch(client, request, wanted, *cut)
	}
	list(client, selection, wanted)
	check(out.Flush())
}

// One call; what resumes it, or nothing when the last object has come.
func watch(client api.ObjectsClient, request *api.WatchRequest, wanted api.Encoding, cut int) *api.WatchRequest {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := client.Watch(ctx, request)
	check(err)
	for seen := 0; ; {
		response, err := stream.Recv()
		check(err)
		switch frame := response.Frame.(type) {
		case *api.WatchResponse_Started:
			if !frame.Started.Resumed || frame.Started.Encoding != wanted {
				log.Fatal(frame)
			}
		case *api.WatchResponse_Events:
			over := false
			for _, event := range frame.Events.Events {
				say(strings.TrimPrefix(event.Type.String(), "TYPE_"), event.Key, event.Object)
				seen++
				over = over || event.Key.Name == "last"
			}
			if over {
				return nil
			}
			if cut > 0 && seen >= cut {
				resumed := &api.WatchRequest{Selection: request.Selection}
				resumed.Start = &api.WatchRequest_ResumeToken{ResumeToken: response.ResumeToken}
				return resumed
			}
		case *api.WatchResponse_Bookmark:
		default:
			log.Fatal(frame)
		}
	}
}

func list(client api.ObjectsClient, selection *api.Selection, wanted api.Encoding) {
	consistency := &api.Consistency{Bound: &api.Consistency_Consistent{Consistent: true}}
	stream, err := client.List(context.Background(), &api.ListRequest{Selection: selection, Consistency: consistency})
	check(err)
	header, err := stream.Recv()
	check(err)
	if header.GetHeader().GetEncoding() != wanted {
		log.Fatal(header)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return
		}
		for _, object := range response.GetChunk().Objects {
			say("STATE", object.Key, object.Object)
		}
	}
}

func say(what string, key *api.Key, object []byte) {
	text := base64.StdEncoding.EncodeToString(object)
	fmt.Fprintf(out, "%s %s/%s@%s %s\n", what, key.Namespace, key.Name, key.ResourceVersion, text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
