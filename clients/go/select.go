package informerd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"

	api "informerd.io/go/informerd/v1"
)

// Resource is a type of objects, such as {Group: "apps", Version: "v1", Resource: "deployments"}, or
// corev1.SchemeGroupVersion.WithResource("pods"). Without a version it is the one that the cluster prefers.
type Resource = schema.GroupVersionResource

var (
	inVersion  = regexp.MustCompile(`^(?:([^/]+)/)?([^/]+)/([^/.]+)$`)
	anyVersion = regexp.MustCompile(`^([^/.]+)(?:\.([^/]+))?$`)
)

// ParseResource reads GROUP/VERSION/RESOURCE, without GROUP/ for the core group ("v1/pods", "apps/v1/deployments"), or
// RESOURCE.GROUP as in kubectl for the version that the cluster prefers ("pods", "deployments.apps").
func ParseResource(text string) (Resource, error) {
	if parts := inVersion.FindStringSubmatch(text); parts != nil {
		return Resource{Group: parts[1], Version: parts[2], Resource: parts[3]}, nil
	}
	if parts := anyVersion.FindStringSubmatch(text); parts != nil {
		return Resource{Group: parts[2], Resource: parts[1]}, nil
	}
	return Resource{}, fmt.Errorf("%q is no resource: want one such as v1/pods, apps/v1/deployments or deployments.apps", text)
}

// Select narrows what of a resource is read, or in which shape.
type Select func(*api.Selection)

// Namespace selects the objects of one namespace.
func Namespace(namespace string) Select {
	return func(s *api.Selection) { s.Filters[0].Namespace = namespace }
}

// Names selects the objects that have one of these names.
func Names(names ...string) Select {
	return func(s *api.Selection) { s.Filters[0].Names = names }
}

// Labels selects by a label selector.
func Labels(selector string) Select {
	return func(s *api.Selection) { s.Filters[0].LabelSelector = selector }
}

// Fields selects by a field selector.
func Fields(selector string) Select {
	return func(s *api.Selection) { s.Filters[0].FieldSelector = selector }
}

// MetadataOnly asks for objects without spec and status, for metav1.PartialObjectMetadata.
func MetadataOnly() Select {
	return func(s *api.Selection) { s.Shape = api.Shape_SHAPE_METADATA_ONLY }
}

// WithoutManagedFields leaves out metadata.managedFields. Such an object must not be written back with an update.
func WithoutManagedFields() Select {
	return func(s *api.Selection) { s.Drop = append(s.Drop, api.Drop_DROP_MANAGED_FIELDS) }
}

// Protobuf asks for the Kubernetes protobuf of built-in types, which is decoded in a fraction of the time.
func Protobuf() Select {
	return func(s *api.Selection) { s.Encoding = api.Encoding_ENCODING_KUBE_PROTOBUF }
}

// Raw changes the selection in any other way that the API has.
func Raw(change func(*api.Selection)) Select { return change }

func selectionOf(resource Resource, options []Select) *api.Selection {
	selection := &api.Selection{
		Resource: &api.Resource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
		Filters:  []*api.Filter{{}},
	}
	for _, option := range options {
		option(selection)
	}
	return selection
}

func nameOf(resource *api.Resource) string {
	if resource.Version == "" {
		return strings.TrimSuffix(resource.Resource+"."+resource.Group, ".")
	}
	return strings.TrimPrefix(resource.Group+"/"+resource.Version+"/"+resource.Resource, "/")
}

// A *T that has it, as those of k8s.io/api, is read from protobuf.
type unmarshaler interface{ Unmarshal([]byte) error }

func decode[T any](data []byte, encoding api.Encoding) (*T, error) {
	into := new(T)
	if encoding != api.Encoding_ENCODING_KUBE_PROTOBUF {
		return into, kjson.Unmarshal(data, into)
	}
	message, ok := any(into).(unmarshaler)
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf: do without Protobuf()", into)
	}
	var unknown runtime.Unknown
	data, ok = bytes.CutPrefix(data, []byte("k8s\x00"))
	if !ok {
		return nil, fmt.Errorf("no Kubernetes protobuf")
	}
	if err := unknown.Unmarshal(data); err != nil {
		return nil, err
	}
	return into, message.Unmarshal(unknown.Raw)
}

// All that is known of an object that went while nobody looked.
func remains[T any](key Key) (*T, error) {
	metadata := map[string]string{"name": key.Name, "uid": key.UID, "resourceVersion": key.ResourceVersion}
	if key.Namespace != "" {
		metadata["namespace"] = key.Namespace
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	return decode[T](data, api.Encoding_ENCODING_JSON)
}
