package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// churner changes objects at random. The same seed against the same state gives
// the same writes, whatever the server is doing meanwhile.
type churner struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
	kind     string
	rand     *rand.Rand
	labels   bool
	patience time.Duration
	count    map[string]int
}

// templates are what an object of a resource needs besides metadata.
var templates = map[string]struct {
	resource, kind string
	content        map[string]any
}{
	"configmaps": {"v1/configmaps", "ConfigMap", map[string]any{"data": map[string]any{"key": "value"}}},
	"secrets":    {"v1/secrets", "Secret", nil},
	"leases":     {"coordination.k8s.io/v1/leases", "Lease", nil},
	"pods": {"v1/pods", "Pod", map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "main", "image": "none"}},
	}}},
	"services": {"v1/services", "Service", map[string]any{"spec": map[string]any{
		"ports": []any{map[string]any{"port": int64(80)}},
	}}},
	"endpointslices": {"discovery.k8s.io/v1/endpointslices", "EndpointSlice", map[string]any{
		"addressType": "IPv4", "endpoints": []any{},
	}},
}

func runChurn(args []string) int {
	flags := flag.NewFlagSet("churn", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server (required)")
	resource := flags.String("resource", "configmaps", "configmaps, secrets, pods, services, leases or endpointslices")
	namespaces := flags.String("namespaces", "default", "comma-separated namespaces, made if they do not exist")
	objects := flags.Int("objects", 10, "how many names to use in each namespace")
	ops := flags.Int("ops", 100, "how many writes to do")
	seed := flags.Uint64("seed", 1, "seed of the random choices")
	labels := flags.Bool("labels", false, "give objects labels and change them")
	pause := flags.Duration("pause", 0, "time to wait after each write")
	patience := flags.Duration("patience", time.Minute, "how long to retry a write the server cannot answer")
	_ = flags.Parse(args)

	template, ok := templates[*resource]
	if !ok {
		return fail(fmt.Errorf("churn: cannot write %q", *resource))
	}
	config, err := clientConfig(*kubeconfig)
	if err != nil {
		return fail(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fail(err)
	}
	c := &churner{
		client: client, kind: template.kind, labels: *labels, patience: *patience,
		rand: rand.New(rand.NewPCG(*seed, 0)), count: map[string]int{},
	}
	c.resource, _ = parseResource(template.resource)

	var names []types.NamespacedName
	for _, namespace := range strings.Split(*namespaces, ",") {
		if err := c.ensureNamespace(namespace); err != nil {
			return fail(err)
		}
		for i := range *objects {
			names = append(names, types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("churn-%d", i)})
		}
	}
	exists := map[types.NamespacedName]bool{}
	for c.count["ops"] < *ops {
		name := names[c.rand.IntN(len(names))]
		if err := c.step(name, exists, template.content); err != nil {
			return fail(fmt.Errorf("%s: %w", name, err))
		}
		time.Sleep(*pause)
	}
	return printJSON(c.count)
}

// step does one write to the object, or two to replace it by a new one.
func (c *churner) step(name types.NamespacedName, exists map[types.NamespacedName]bool, content map[string]any) error {
	dice := c.rand.IntN(10)
	metadata, value := c.metadata(name), strconv.FormatUint(c.rand.Uint64(), 36)
	client := c.client.Resource(c.resource).Namespace(name.Namespace)
	create := func(ctx context.Context) error {
		unsetNulls(metadata)
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": c.resource.GroupVersion().String(), "kind": c.kind, "metadata": metadata,
		}}
		for key, part := range content {
			object.Object[key] = part
		}
		_, err := client.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // left over, or an earlier try got through
		}
		return err
	}
	update := func(ctx context.Context) error {
		metadata["annotations"] = map[string]any{"churn": value}
		patch, err := json.Marshal(map[string]any{"metadata": metadata})
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, name.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	remove := func(ctx context.Context) error {
		now := int64(0) // there is no kubelet to end a pod gracefully
		err := client.Delete(ctx, name.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	if !exists[name] {
		exists[name] = true
		return c.do("created", create)
	}
	switch {
	case dice < 6:
		return c.do("updated", update)
	case dice < 8:
		exists[name] = false
		return c.do("deleted", remove)
	default:
		return errors.Join(c.do("deleted", remove), c.do("created", create))
	}
}

// metadata is an object's metadata with random labels. Those it has not are
// null, which a merge patch takes as their removal.
func (c *churner) metadata(name types.NamespacedName) map[string]any {
	metadata := map[string]any{"name": name.Name, "namespace": name.Namespace}
	if c.labels {
		metadata["labels"] = map[string]any{
			"color":  []any{"red", "green", "blue"}[c.rand.IntN(3)],
			"picked": []any{"yes", "yes", nil}[c.rand.IntN(3)],
		}
	}
	return metadata
}

// unsetNulls drops the null labels, which only a patch understands.
func unsetNulls(metadata map[string]any) {
	if labels, ok := metadata["labels"].(map[string]any); ok {
		maps.DeleteFunc(labels, func(_ string, value any) bool { return value == nil })
	}
}

// do counts and does one write.
func (c *churner) do(kind string, write func(context.Context) error) error {
	c.count["ops"]++
	c.count[kind]++
	return c.retry(write)
}

// retry writes again and again while the server cannot answer.
func (c *churner) retry(write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	for {
		err := write(ctx)
		var status apierrors.APIStatus
		final := errors.As(err, &status) && !apierrors.IsServerTimeout(err) && !apierrors.IsTooManyRequests(err) &&
			!apierrors.IsServiceUnavailable(err) && !apierrors.IsInternalError(err) && !apierrors.IsTimeout(err)
		if err == nil || final || ctx.Err() != nil {
			return err
		}
		c.count["retried"]++
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *churner) ensureNamespace(name string) error {
	return c.retry(func(ctx context.Context) error {
		namespaces := c.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
		_, err := namespaces.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func printJSON(value any) int {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		return fail(err)
	}
	return 0
}
