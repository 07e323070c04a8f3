package main

import (
	"fmt"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// source says what an informer watches and through which of client-go's clients.
type source struct {
	mode      string
	protobuf  bool
	resource  schema.GroupVersionResource
	namespace string
	labels    string
	fields    string
}

// informer makes a new informer with a client, and so connections, of its own.
func (s *source) informer(config *rest.Config) (cache.SharedIndexInformer, error) {
	tweak := func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = s.labels, s.fields }
	config = rest.CopyConfig(config)
	// Transports are shared between equal configurations; a dialer makes this
	// one unequal to all others.
	config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	switch s.mode {
	case "typed":
		if s.protobuf {
			config.ContentType = runtime.ContentTypeProtobuf
			config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		generic, err := informers.NewSharedInformerFactoryWithOptions(client, 0,
			informers.WithNamespace(s.namespace), informers.WithTweakListOptions(tweak)).ForResource(s.resource)
		if err != nil {
			return nil, err
		}
		return generic.Informer(), nil
	case "dynamic":
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewFilteredDynamicInformer(client, s.resource, s.namespace, 0,
			cache.Indexers{}, tweak).Informer(), nil
	case "metadata":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewFilteredMetadataInformer(client, s.resource, s.namespace, 0,
			cache.Indexers{}, tweak).Informer(), nil
	}
	return nil, fmt.Errorf("unknown mode %q", s.mode)
}
