package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// applyPatience bounds how long a manifest waits for what it needs: a definition
// that was applied a moment ago is served a little later.
const applyPatience = 20 * time.Second

// applier does what `kubectl apply --server-side` does, without a process for
// each manifest.
type applier struct {
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
	resources map[schema.GroupVersion]*metav1.APIResourceList
}

func newApplier(kubeconfig string) (*applier, error) {
	config, err := clientConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	a := &applier{resources: map[schema.GroupVersion]*metav1.APIResourceList{}}
	if a.client, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	a.discovery, err = discovery.NewDiscoveryClientForConfig(config)
	return a, err
}

// manifest applies every object of a manifest, in order.
func (a *applier) manifest(ctx context.Context, text string) error {
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := a.object(ctx, object); err != nil {
			return fmt.Errorf("%s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
		}
	}
}

func (a *applier) object(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, applyPatience)
	defer cancel()
	err := patiently(ctx, func() error {
		client, err := a.of(object)
		if err != nil {
			return err
		}
		options := metav1.ApplyOptions{FieldManager: "kubectl", Force: true}
		_, err = client.Apply(ctx, object.GetName(), object, options)
		return err
	})
	if err != nil || object.GetKind() != "CustomResourceDefinition" {
		return err
	}
	return a.established(ctx, object)
}

// of is the client for the collection that an object belongs to.
func (a *applier) of(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	version := kind.GroupVersion()
	if a.resources[version] == nil {
		list, err := a.discovery.ServerResourcesForGroupVersion(version.String())
		if err != nil {
			return nil, err
		}
		a.resources[version] = list
	}
	for _, resource := range a.resources[version].APIResources {
		if resource.Kind != kind.Kind || strings.Contains(resource.Name, "/") {
			continue
		}
		collection := a.client.Resource(version.WithResource(resource.Name))
		if !resource.Namespaced {
			return collection, nil
		}
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		return collection.Namespace(namespace), nil
	}
	delete(a.resources, version) // it may come
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, "")
}

// established waits until the resource of a definition can be used: until then
// neither its objects nor discovery know it.
func (a *applier) established(ctx context.Context, definition *unstructured.Unstructured) error {
	client, err := a.of(definition)
	if err != nil {
		return err
	}
	err = patiently(ctx, func() error {
		found, err := client.Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(found.Object, "status", "conditions") // there may be none
		for _, condition := range conditions {
			if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
				return nil
			}
		}
		return apierrors.NewServiceUnavailable("the definition is not established")
	})
	if err != nil {
		return err
	}
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		return err
	}
	for _, version := range versions {
		v, ok := version.(map[string]any)
		if !ok || v["served"] != true {
			continue
		}
		custom := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": fmt.Sprintf("%s/%v", group, v["name"]), "kind": kind,
		}}
		err := patiently(ctx, func() error {
			_, err := a.of(custom)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// patiently repeats what fails because something is not there yet.
func patiently(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// apply applies a manifest, given as a JSON string, as admin of the first server.
func (c *cluster) apply(ctx context.Context, quoted string) error {
	var text string
	if err := json.Unmarshal([]byte(quoted), &text); err != nil {
		return fmt.Errorf("apply takes a manifest as a JSON string: %w", err)
	}
	a, err := newApplier(c.servers[0].configs.Admin)
	if err != nil {
		return err
	}
	return a.manifest(ctx, text)
}

// token is what `kubectl create token` prints.
func (c *cluster) token(ctx context.Context, namespace, account string) (string, error) {
	client, _, err := c.admin()
	if err != nil {
		return "", err
	}
	request := &authenticationv1.TokenRequest{}
	made, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Status.Token, nil
}
