package informerd

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	api "informerd.io/go/informerd/v1"
)

// What is told until `count` events have come, in order.
func told(t *testing.T, client *Client, count int) []string {
	t.Helper()
	all := []string{}
	for event, err := range Watch[corev1.Pod](bounded(t), client, pods) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, line(t, event))
		if len(all) == count {
			return all
		}
	}
	t.Fatalf("the watch has ended after %v", all)
	return nil
}

func line(t *testing.T, event Event[corev1.Pod]) string {
	t.Helper()
	if event.Type == Synced {
		return "SYNCED"
	}
	pod := event.Object
	if pod.Name != event.Key.Name || string(pod.UID) != event.Key.UID || pod.ResourceVersion != event.Key.ResourceVersion {
		t.Errorf("%v is not of %v", pod.ObjectMeta, event.Key)
	}
	if event.FinalStateUnknown != (pod.Spec.NodeName == "") {
		t.Errorf("%v: %v", event, pod.Spec)
	}
	text := fmt.Sprintf("%s %s %s", event.Type, event.Key, event.Key.ResourceVersion)
	if event.FinalStateUnknown {
		text += "?"
	}
	return text
}

func expect(t *testing.T, found, wanted []string) {
	t.Helper()
	if !slices.Equal(found, wanted) {
		t.Errorf("found  %q\nwanted %q", found, wanted)
	}
}

func TestAWatchGoesOnFromItsTokenAndTellsNothingTwice(t *testing.T) {
	t.Parallel()
	tokens := make(chan string, 3)
	server := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		broken(started(false), events("1", "+a1", "+b2"), snapshotEnd(), events("2", "~a3")),
		broken(), broken(), // The same outage.
		func(request *api.WatchRequest, stream grpc.ServerStreamingServer[api.WatchResponse]) error {
			tokens <- string(request.GetResumeToken())
			// The last frame may come a second time.
			return script(started(true), events("2", "~a3"), events("3", "-b4", "+c5"))(request, stream)
		},
	}}
	client, log := server.start(t)
	expect(t, told(t, client, 6), []string{
		"ADDED n/a 1", "ADDED n/b 2", "SYNCED", "MODIFIED n/a 3", "DELETED n/b 4", "ADDED n/c 5",
	})
	if token := <-tokens; token != "2" {
		t.Errorf("resumed from %q", token)
	}
	for _, once := range []string{"informerd does not answer", "informerd answers again"} {
		if log.count(once) != 1 || log.count("http://192.0.2.1:8001") != 2 {
			t.Errorf("%q: %s", once, log.buffer.String())
		}
	}
}

func TestWhatWentWhileNobodyLookedIsTold(t *testing.T) {
	t.Parallel()
	first := []*api.WatchResponse{started(false), events("1", "+a1", "+b2", "+c3", "+d4"), snapshotEnd()}
	// a is gone, b was made anew, c is the same, d has changed, e is new, f came and went meanwhile.
	then := []*api.WatchResponse{events("", "+b6/x", "+c3", "+f5"), events("", "-f7", "+d8", "+e9"), snapshotEnd(), events("2", "-e10")}
	wanted := []string{
		"ADDED n/a 1", "ADDED n/b 2", "ADDED n/c 3", "ADDED n/d 4", "SYNCED",
		"DELETED n/b 2?", "ADDED n/b 6", "ADDED n/f 5", "DELETED n/f 7", "MODIFIED n/d 8", "ADDED n/e 9", "DELETED n/a 1?",
		"DELETED n/e 10",
	}
	over := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		broken(first...), script(append([]*api.WatchResponse{started(false)}, then...)...),
	}}
	within := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		script(append(append(first, reset()), then...)...),
	}}
	for _, server := range []*fake{over, within} {
		client, _ := server.start(t)
		expect(t, told(t, client, len(wanted)), wanted)
	}
}

func TestASnapshotThatWasCutIsContinued(t *testing.T) {
	t.Parallel()
	server := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		broken(started(false), events("half", "+a1")),
		script(started(true), events("whole", "+b2"), snapshotEnd()),
	}}
	client, _ := server.start(t)
	expect(t, told(t, client, 3), []string{"ADDED n/a 1", "ADDED n/b 2", "SYNCED"})
}

func TestATokenThatIsRefusedIsGivenUp(t *testing.T) {
	t.Parallel()
	refused := func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error {
		return refusal(codes.InvalidArgument, "INVALID")
	}
	again := func(request *api.WatchRequest, stream grpc.ServerStreamingServer[api.WatchResponse]) error {
		if request.Start != nil {
			return refusal(codes.InvalidArgument, "INVALID")
		}
		return script(started(false), events("2", "+b5"), snapshotEnd())(request, stream)
	}
	server := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		broken(started(false), events("1", "+a1"), snapshotEnd()), refused, again,
	}}
	client, _ := server.start(t)
	expect(t, told(t, client, 4), []string{"ADDED n/a 1", "SYNCED", "ADDED n/b 5", "DELETED n/a 1?"})
}

func TestWhatCannotSucceedEndsTheWatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		code   codes.Code
		reason string
		final  bool
	}{
		{codes.NotFound, "UNKNOWN_RESOURCE", true},
		{codes.InvalidArgument, "INVALID", true},
		{codes.PermissionDenied, "FORBIDDEN", true},
		{codes.Unauthenticated, "UNAUTHENTICATED", true},
		{codes.FailedPrecondition, "EXCLUDED", true},
		{codes.FailedPrecondition, "STALE", false},
		{codes.FailedPrecondition, "SELECTIONS_DIFFER", false},
		{codes.Unavailable, "NOT_SYNCED", false},
		{codes.ResourceExhausted, "TOO_MANY", false},
		{codes.Internal, "INTERNAL", false},
		// Not informerd's word.
		{codes.NotFound, "", false},
		{codes.Unimplemented, "", false},
	} {
		t.Run(test.code.String()+test.reason, func(t *testing.T) {
			t.Parallel()
			server := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
				func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error {
					if test.reason == "" {
						return status.Error(test.code, "who knows")
					}
					return refusal(test.code, test.reason)
				},
				script(started(false), snapshotEnd()),
			}}
			client, _ := server.start(t)
			var end error
			for _, err := range Watch[corev1.Pod](bounded(t), client, pods) {
				end = err
				if err == nil {
					break
				}
			}
			if (end != nil) != test.final {
				t.Fatal(end)
			}
			if !test.final {
				return
			}
			if status.Code(end) != test.code || !strings.Contains(end.Error(), "informerd at http://192.0.2.1:8001, watch of v1/pods: ") {
				t.Error(end)
			}
			if (test.reason == "UNKNOWN_RESOURCE") != strings.Contains(end.Error(), "kubectl api-resources") {
				t.Error(end)
			}
		})
	}
}

func TestARangeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := &fake{watches: []func(*api.WatchRequest, grpc.ServerStreamingServer[api.WatchResponse]) error{
		script(started(false), snapshotEnd()),
	}}
	client, _ := server.start(t)
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	for event, err := range Watch[corev1.Pod](ctx, client, pods) {
		if err != nil || event.Type != Synced {
			t.Fatal(event, err)
		}
		cancel()
	}
}

func TestObjectsAreOfTheTypeThatIsAskedFor(t *testing.T) {
	t.Parallel()
	data := podJSON("a", "u", "7")
	untyped, err := decode[unstructured.Unstructured](data, api.Encoding_ENCODING_JSON)
	if err != nil || untyped.GetName() != "a" || untyped.GetKind() != "Pod" {
		t.Error(untyped, err)
	}
	partial, err := decode[metav1.PartialObjectMetadata](data, api.Encoding_ENCODING_JSON)
	if err != nil || partial.UID != "u" {
		t.Error(partial, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "node"}}
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	wrapped, err := (&runtime.Unknown{Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	wrapped = append([]byte("k8s\x00"), wrapped...)
	typed, err := decode[corev1.Pod](wrapped, api.Encoding_ENCODING_KUBE_PROTOBUF)
	if err != nil || !reflect.DeepEqual(typed, pod) {
		t.Error(typed, err)
	}
	if _, err := decode[unstructured.Unstructured](wrapped, api.Encoding_ENCODING_KUBE_PROTOBUF); err == nil {
		t.Error("an untyped object was read from protobuf")
	}
	if _, err := decode[corev1.Pod](data, api.Encoding_ENCODING_KUBE_PROTOBUF); err == nil {
		t.Error("JSON was read as protobuf")
	}
}

func TestASelectionSaysWhatItsOptionsSay(t *testing.T) {
	t.Parallel()
	selection := selectionOf(pods, []Select{
		Namespace("n"), Names("a", "b"), Labels("app=web"), Fields("spec.nodeName=node"), MetadataOnly(), WithoutManagedFields(),
		Protobuf(), Raw(func(s *api.Selection) { s.Filters = append(s.Filters, &api.Filter{Namespace: "m"}) }),
	})
	filter := selection.Filters[0]
	if filter.Namespace != "n" || !slices.Equal(filter.Names, []string{"a", "b"}) || filter.LabelSelector != "app=web" ||
		filter.FieldSelector != "spec.nodeName=node" || selection.Shape != api.Shape_SHAPE_METADATA_ONLY ||
		!slices.Equal(selection.Drop, []api.Drop{api.Drop_DROP_MANAGED_FIELDS}) ||
		selection.Encoding != api.Encoding_ENCODING_KUBE_PROTOBUF || selection.Filters[1].Namespace != "m" {
		t.Error(selection)
	}
}

func TestResourcesAreReadFromText(t *testing.T) {
	t.Parallel()
	for text, wanted := range map[string]Resource{
		"v1/pods":                    pods,
		"apps/v1/deployments":        {Group: "apps", Version: "v1", Resource: "deployments"},
		"pods":                       {Resource: "pods"},
		"deployments.apps":           {Group: "apps", Resource: "deployments"},
		"leases.coordination.k8s.io": {Group: "coordination.k8s.io", Resource: "leases"},
	} {
		resource, err := ParseResource(text)
		if err != nil || resource != wanted {
			t.Error(resource, err)
		}
		if shown := nameOf(selectionOf(resource, nil).Resource); shown != text {
			t.Error(shown, text)
		}
	}
	for _, wrong := range []string{"", "/v1/", "v1/", "/v1/pods", "a/b/c/d", ".apps", "pods.", "v1/pods.apps"} {
		if _, err := ParseResource(wrong); err == nil {
			t.Error(wrong)
		}
	}
}
