package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	registrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	registrationrest "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	kubelet "k8s.io/kubernetes/pkg/kubelet/client"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shelf is the storage of one type: objects filled at random instead of etcd. All that is above it is the apiserver's own.
type shelf struct {
	storage.Interface
	newFunc func() runtime.Object
	attrs   storage.AttrFunc
	trigger storage.IndexerFuncs
	objects []runtime.Object
}

// shelves gives each type its shelf, in place of etcd.
type shelves struct {
	factory serverstorage.StorageFactory
	filler  *filler
	all     map[schema.GroupResource]*shelf
}

// vector is what is written of each answer, in front of its bytes.
type vector struct {
	Path   string `json:"path"`
	Accept string `json:"accept"`
	Status int    `json:"status"`
	Len    int    `json:"len"`
}

// resource is what is written of each resource, in front of its answers.
type resource struct {
	Group      string `json:"group"`
	Version    string `json:"version"`
	Resource   string `json:"resource"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
	// By each label that selects, its value in each object, as bytes.
	Fields map[string][][]byte `json:"fields"`
	// What the server says of other labels.
	Refused map[string]string `json:"refused"`
	// The labels by which it finds the watchers of an object.
	Triggers []string `json:"triggers"`
}

const (
	inJSON     = "application/json"
	inProtobuf = "application/vnd.kubernetes.protobuf"
)

func init() { commands["vectors"] = runVectors }

// runVectors writes what the apiserver's own code makes of random objects of every type.
func runVectors(args []string) int {
	flags := flag.NewFlagSet("vectors", flag.ExitOnError)
	seed := flags.Int64("seed", 1, "the objects' seed")
	_ = flags.Parse(args)
	logs := flag.NewFlagSet("klog", flag.ExitOnError)
	klog.InitFlags(logs)
	_ = logs.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"})
	klog.SetOutput(io.Discard)
	server, shelves, err := newVectorServer(*seed)
	if err != nil {
		return fail(err)
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	write := func(what any, body []byte) {
		line, err := json.Marshal(what)
		if err != nil {
			panic(err)
		}
		out.Write(append(line, '\n'))
		out.Write(body)
	}
	get := func(path, accept string) []byte {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Header.Set("Accept", accept)
		recorder := streamed{httptest.NewRecorder()}
		// A printer may take for granted what validation would ensure. The server itself recovers from that, too.
		defer func() { _ = recover() }()
		server.Handler.ServeHTTP(recorder, request)
		body := recorder.Body.Bytes()
		write(vector{path, accept, recorder.Code, len(body)}, body)
		return body
	}
	for _, root := range []string{"/api", "/apis"} {
		var document apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(get(root, inJSON+";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), &document); err != nil {
			return fail(err)
		}
		// What client-go makes of it.
		groups, byVersion, _ := discovery.SplitGroupsAndResources(document)
		var resources []*metav1.APIResourceList
		for _, group := range groups.Groups {
			for _, version := range group.Versions {
				resources = append(resources, byVersion[schema.GroupVersion{Group: group.Name, Version: version.Version}])
			}
		}
		list, err := json.Marshal(resources)
		if err != nil {
			return fail(err)
		}
		write(vector{root, "client-go", 200, len(list)}, list)
		for _, resources := range resources {
			for _, found := range resources.APIResources {
				gv, _ := schema.ParseGroupVersion(resources.GroupVersion)
				if !slices.Contains(found.Verbs, "watch") || strings.Contains(found.Name, "/") || strings.HasSuffix(gv.Group, ".example.com") {
					continue
				}
				of := shelves.all[schema.GroupResource{Group: strings.Replace(gv.Group, "events.k8s.io", "", 1), Resource: found.Name}]
				about := of.describe(gv.WithKind(found.Kind), found)
				write(about, nil)
				of.ask(root, about, get)
			}
		}
	}
	for _, crontab := range shelves.filler.customs() {
		body, err := runtime.Encode(unstructured.UnstructuredJSONScheme, crontab)
		if err != nil {
			return fail(err)
		}
		write(vector{"/crontab", inJSON, 200, len(body)}, body)
		partial := meta.AsPartialObjectMetadata(crontab)
		for _, version := range []string{"v1", "v1beta1"} {
			gv := schema.GroupVersion{Group: metav1.GroupName, Version: version}
			for _, media := range []string{inJSON, inProtobuf} {
				info, _ := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), media)
				partial.SetGroupVersionKind(gv.WithKind("PartialObjectMetadata"))
				body, err := runtime.Encode(info.Serializer, partial)
				if err != nil {
					return fail(err)
				}
				write(vector{"/crontab", media + ";v=" + version, 200, len(body)}, body)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fail(err)
	}
	return 0
}

// streamed records an answer that may be a stream.
type streamed struct{ *httptest.ResponseRecorder }

func (streamed) CloseNotify() <-chan bool { return nil }

// ask has the server answer all that is compared of one resource.
func (s *shelf) ask(root string, of resource, get func(path, accept string) []byte) {
	base := strings.TrimSuffix(root+"/"+of.Group, "/") + "/" + of.Version
	collection := base + "/" + of.Resource
	paths := []string{collection, collection + "?limit=2"}
	if of.Namespaced {
		paths = append(paths, base+"/namespaces/nobody/"+of.Resource)
		for _, object := range s.objects {
			if isRefused(object) {
				paths = append(paths, base+"/namespaces/"+refused+"/"+of.Resource)
				break
			}
		}
	}
	for _, include := range []string{"None", "Metadata", "Object"} {
		for _, path := range []string{collection + "?", collection + "?watch=1&"} {
			get(path+"includeObject="+include, inJSON+";g=meta.k8s.io;v=v1;as=Table")
		}
	}
	for _, media := range []string{inJSON, inProtobuf} {
		get(collection+"?watch=1", media)
		for _, path := range paths {
			get(path, media)
		}
		for _, version := range []string{"v1", "v1beta1"} {
			partial := media + ";g=meta.k8s.io;v=" + version + ";as=PartialObjectMetadata"
			get(collection+"?watch=1", partial)
			for _, path := range paths {
				get(path, partial+"List")
			}
		}
		first, _ := meta.Accessor(s.objects[0])
		path := collection + "/" + first.GetName()
		if of.Namespaced {
			path = base + "/namespaces/" + first.GetNamespace() + "/" + of.Resource + "/" + first.GetName()
		}
		get(path, media)
		get(path, media+";g=meta.k8s.io;v=v1;as=PartialObjectMetadata")
	}
}

// describe finds the labels that select, by trying the paths of all members, and those of the internal object.
func (s *shelf) describe(gvk schema.GroupVersionKind, found metav1.APIResource) resource {
	scheme := schemeOf(gvk.Group)
	about := resource{gvk.Group, gvk.Version, found.Name, gvk.Kind, found.Namespaced, map[string][][]byte{}, map[string]string{}, []string{}}
	for label := range s.trigger {
		about.Triggers = append(about.Triggers, label)
	}
	candidates := sets.New("spec.host", "status.podIPs", "metadata.name", "metadata.namespace", "", " metadata.name", "no\"pe")
	var sets []fields.Set
	for _, object := range s.shown() {
		_, set, err := s.attrs(object)
		if err != nil {
			panic(err)
		}
		sets = append(sets, set)
		for label := range set {
			candidates.Insert(label)
		}
	}
	versioned, err := scheme.New(gvk)
	if err != nil {
		panic(err)
	}
	paths(reflect.TypeOf(versioned).Elem(), "", 3, candidates)
	for label := range candidates {
		internal, value, err := scheme.ConvertFieldLabel(gvk, label, "value")
		if err != nil {
			about.Refused[label] = err.Error()
			continue
		} else if value != "value" {
			panic(label + " is converted with its value")
		}
		for _, set := range sets {
			about.Fields[label] = append(about.Fields[label], []byte(set.Get(internal)))
		}
	}
	return about
}

// paths collects the paths of a type's members, as they are named in JSON.
func paths(of reflect.Type, at string, depth int, found sets.Set[string]) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if at != "" {
		found.Insert(strings.TrimPrefix(at, "."))
	}
	for i := 0; depth > 0 && of.Kind() == reflect.Struct && i < of.NumField(); i++ {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			paths(of.Field(i).Type, at+"."+name, depth-1, found)
		}
	}
}

func schemeOf(group string) *runtime.Scheme {
	switch group {
	case apiextensions.GroupName:
		return extensions.Scheme
	case apiregistration.GroupName:
		return aggregator.Scheme
	}
	return legacyscheme.Scheme
}

// newVectorServer is a kube-apiserver with everything that it can serve, on shelves instead of etcd.
func newVectorServer(seed int64) (*genericapiserver.GenericAPIServer, *shelves, error) {
	if err := utilfeature.DefaultMutableFeatureGate.Set("AllAlpha=true,AllBeta=true"); err != nil {
		return nil, nil, err
	}
	enabled := controlplane.DefaultAPIResourceConfigSource()
	for _, versions := range legacyscheme.Scheme.PrioritizedVersionsAllGroups() {
		enabled.EnableVersions(versions)
	}
	enabled.EnableVersions(extensionsv1.SchemeGroupVersion, registrationv1.SchemeGroupVersion)
	config := genericapiserver.NewConfig(legacyscheme.Codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.LoopbackClientConfig = &restclient.Config{
		APIPath: "/api", ContentConfig: restclient.ContentConfig{NegotiatedSerializer: legacyscheme.Codecs}}
	config.PublicAddress = net.IPv4(192, 0, 2, 1)
	config.LegacyAPIGroupPrefixes = sets.NewString("/api")
	config.SecureServing = &genericapiserver.SecureServingInfo{Listener: nowhere{}}
	config.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return filters.WithRequestInfo(handler, c.RequestInfoResolver)
	}
	factoryConfig := kubeapiserver.NewStorageFactoryConfig()
	factoryConfig.DefaultResourceEncoding.SetEffectiveVersion(config.EffectiveVersion)
	encoding := resourceconfig.MergeResourceEncodingConfigs(factoryConfig.DefaultResourceEncoding, factoryConfig.ResourceEncodingOverrides)
	// Allocators of ports and addresses connect to etcd, of which they ask nothing here.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	go grpc.NewServer().Serve(listener)
	unused := storagebackend.Config{Transport: storagebackend.TransportConfig{ServerList: []string{"http://" + listener.Addr().String()}}}
	stores := serverstorage.NewDefaultStorageFactory(unused, inProtobuf, factoryConfig.Serializer, encoding, enabled, nil)
	all := &shelves{stores, newFiller(seed), map[schema.GroupResource]*shelf{}}
	config.RESTOptionsGetter = all
	definitionNamer := openapinamer.NewDefinitionNamer(legacyscheme.Scheme, extensions.Scheme, aggregator.Scheme)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, definitionNamer)
	config.MergedResourceConfig = enabled
	client, err := kubernetes.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return nil, nil, err
	}
	extra := controlplaneapiserver.Extra{
		APIResourceConfigSource: enabled,
		StorageFactory:          stores,
		VersionedInformers:      informers.NewSharedInformerFactory(client, 0),
	}
	whole := &controlplane.Config{
		ControlPlane: controlplaneapiserver.Config{Generic: config, Extra: extra},
		Extra: controlplane.Extra{
			EndpointReconcilerType: reconcilers.NoneEndpointReconcilerType,
			ServiceIPRange:         net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(24, 32)},
			KubeletClientConfig:    kubelet.KubeletClientConfig{Port: 10250},
		},
	}
	instance, err := whole.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, nil, err
	}
	server := instance.ControlPlane.GenericAPIServer
	definitions, err := customresourcedefinition.NewREST(extensions.Scheme, all)
	if err != nil {
		return nil, nil, err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(apiextensions.GroupName, extensions.Scheme, metav1.ParameterCodec, extensions.Codecs)
	group.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{"customresourcedefinitions": definitions}
	services := registrationrest.NewRESTStorage(enabled, all, false)
	if err := server.InstallAPIGroups(&group, &services); err != nil {
		return nil, nil, err
	}
	// As other servers describe themselves: with parts that are nil.
	for n, version := range all.filler.discovery() {
		server.AggregatedDiscoveryGroupManager.AddGroupVersion(fmt.Sprintf("g%d.example.com", n), version)
	}
	return server, all, nil
}

// nowhere stands for the listener whose port the server asks for.
type nowhere struct{ net.Listener }

func (nowhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// GetRESTOptions gives a type its codec, and its shelf.
func (s *shelves) GetRESTOptions(of schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	config := &storagebackend.ConfigForResource{GroupResource: of}
	switch of.Group {
	case apiextensions.GroupName:
		config.Codec = extensions.Codecs.LegacyCodec(extensionsv1.SchemeGroupVersion)
	case apiregistration.GroupName:
		config.Codec = aggregator.Codecs.LegacyCodec(registrationv1.SchemeGroupVersion)
	default:
		var err error
		if config, err = s.factory.NewConfig(of, example); err != nil {
			return generic.RESTOptions{}, err
		}
	}
	// Both groups of events have one storage.
	decorator := func(
		config *storagebackend.ConfigForResource, _ string, key func(runtime.Object) (string, error),
		newFunc, _ func() runtime.Object, attrs storage.AttrFunc, trigger storage.IndexerFuncs, _ *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		name, err := key(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns"}})
		isNamespaced := err == nil && strings.HasSuffix(name, "/ns/n")
		if s.all[of] == nil {
			s.all[of] = &shelf{newFunc: newFunc, attrs: attrs, trigger: trigger, objects: s.filler.objects(of, newFunc, isNamespaced, config.Codec)}
		}
		return s.all[of], func() {}, nil
	}
	return generic.RESTOptions{StorageConfig: config, Decorator: decorator, ResourcePrefix: of.Group + "/" + of.Resource}, nil
}

// shown are the objects that no reader refuses.
func (s *shelf) shown() (shown []runtime.Object) {
	for _, object := range s.objects {
		if !isRefused(object) {
			shown = append(shown, object)
		}
	}
	return shown
}

func (s *shelf) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }
func (s *shelf) ReadinessCheck() error        { return nil }

func (s *shelf) GetList(_ context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	var selected []runtime.Object
	for _, object := range s.objects {
		matches, err := options.Predicate.Matches(object)
		if err != nil {
			return err
		}
		if matches && isRefused(object) == strings.Contains(key, "/"+refused) && !strings.Contains(key, "/nobody") {
			selected = append(selected, object.DeepCopyObject())
		}
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	accessor.SetResourceVersion(strconv.Itoa(last))
	if limit := int(options.Predicate.Limit); limit > 0 {
		remaining := int64(len(selected) - limit)
		accessor.SetContinue("the<next>")
		accessor.SetRemainingItemCount(&remaining)
		selected = selected[:limit]
	}
	return meta.SetList(list, selected)
}

func (s *shelf) Get(_ context.Context, key string, _ storage.GetOptions, out runtime.Object) error {
	for _, object := range s.objects {
		if accessor, err := meta.Accessor(object); err != nil || !strings.HasSuffix(key, "/"+accessor.GetName()) {
			continue
		}
		reflect.ValueOf(out).Elem().Set(reflect.ValueOf(object.DeepCopyObject()).Elem())
		return nil
	}
	return storage.NewKeyNotFoundError(key, 0)
}

func (s *shelf) Watch(context.Context, string, storage.ListOptions) (watch.Interface, error) {
	events := watch.NewFakeWithChanSize(100, false)
	kinds := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}
	for n, object := range s.shown() {
		events.Action(kinds[n%len(kinds)], object.DeepCopyObject())
	}
	for _, end := range []bool{false, true} {
		bookmark := s.newFunc()
		accessor, err := meta.Accessor(bookmark)
		if err != nil {
			return nil, err
		}
		accessor.SetResourceVersion(strconv.Itoa(last))
		if end {
			accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
		events.Action(watch.Bookmark, bookmark)
	}
	details := &metav1.StatusDetails{Name: "n", Group: "g", Kind: "k", UID: "u", RetryAfterSeconds: 3,
		Causes: []metav1.StatusCause{{Type: "t", Message: "m", Field: "f"}, {}}}
	events.Error(&metav1.Status{ListMeta: metav1.ListMeta{Continue: "c"}, Status: metav1.StatusFailure, Code: 410,
		Reason: metav1.StatusReasonExpired, Message: "<too old & gone>", Details: details})
	events.Stop()
	return events, nil
}
