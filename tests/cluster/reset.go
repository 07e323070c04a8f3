package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// resetPatience bounds a reset; a cluster that takes longer is not used again.
const resetPatience = 20 * time.Second

// moment is what there was when the cluster became ready.
type moment struct {
	keys  map[string][]byte // of etcd
	files []string          // right in the cluster's directory
	apis  []byte            // the groups that the server names
}

// alive are the keys by which a running kube-apiserver says that it is there.
var alive = []string{
	"/registry/leases/kube-system/apiserver-", "/registry/masterleases/", "/registry/peerserverleases/",
}

// undone are the resources whose objects can be taken back: nothing but caches
// that follow etcd comes from them. A cluster in which anything else was changed
// is not used again.
var undone = []string{
	"apiextensions.k8s.io/customresourcedefinitions", "apiregistration.k8s.io/apiservices",
	"clusterrolebindings", "clusterroles", "configmaps", "controllers", "cronjobs", "certificatesigningrequests",
	"daemonsets", "deployments", "endpointslices", "events", "ipaddresses", "jobs", "leases", "limitranges", "minions",
	"namespaces", "poddisruptionbudgets", "pods", "replicasets", "rolebindings", "roles", "secrets", "serviceaccounts",
	"services", "statefulsets", "ranges",
}

const (
	definitions = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
	apiServices = "/registry/apiregistration.k8s.io/apiservices/"
)

// remember keeps the moment for later resets. It waits until nothing is written
// any more: the server's own objects belong to it.
func (c *cluster) remember(ctx context.Context) error {
	before, err := c.store.revision(ctx)
	if err != nil {
		return err
	}
	for {
		time.Sleep(100 * time.Millisecond)
		now, err := c.store.revision(ctx)
		if err != nil {
			return err
		}
		if now == before {
			break
		}
		before = now
	}
	if c.moment.keys, err = c.store.keys(ctx); err != nil {
		return err
	}
	if c.moment.apis, err = c.apis(ctx); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.dir)
	for _, entry := range entries {
		c.moment.files = append(c.moment.files, entry.Name())
	}
	return err
}

// reset brings the cluster back to the moment when it was ready, but for the
// revision. It returns when the server has seen that, too.
func (c *cluster) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resetPatience)
	defer cancel()
	if len(c.servers) != 1 || !c.servers[0].running() || c.moment.keys == nil {
		return errors.New("reset takes one kube-apiserver that runs")
	}
	if err := c.resetKeys(ctx); err != nil {
		return err
	}
	if err := c.resetRights(ctx); err != nil {
		return err
	}
	if err := c.resetKeys(ctx); err != nil {
		return err
	}
	if err := c.caughtUp(ctx); err != nil {
		return err
	}
	return c.resetFiles()
}

// resetKeys writes to etcd until it holds what it held, and the server has taken
// back what it made of definitions.
func (c *cluster) resetKeys(ctx context.Context) error {
	for {
		changed, err := c.restore(ctx)
		if err != nil {
			return err
		}
		apis, err := c.apis(ctx)
		if err != nil {
			return err
		}
		if !changed && bytes.Equal(apis, c.moment.apis) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("reset: the state does not come to rest")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// restore writes what differs and says whether anything did.
func (c *cluster) restore(ctx context.Context) (changed bool, err error) {
	found, err := c.store.keys(ctx)
	if err != nil {
		return false, err
	}
	var ops []clientv3.Op
	var last []clientv3.Op // definitions, when none of their objects is left
	for key, value := range found {
		was, known := c.moment.keys[key]
		if known && bytes.Equal(was, value) {
			continue
		}
		changed = true
		switch {
		case known:
			ops = append(ops, clientv3.OpPut(key, string(was)))
		case strings.HasPrefix(key, definitions):
			last = append(last, clientv3.OpDelete(key))
		case strings.HasPrefix(key, apiServices) && bytes.Contains(value, []byte("automanaged")):
			// The server deletes it after the definition.
		default:
			ops = append(ops, clientv3.OpDelete(key))
		}
		if err := c.canBeUndone(key); err != nil {
			return true, err
		}
	}
	for key, was := range c.moment.keys {
		if _, there := found[key]; !there {
			changed = true
			ops = append(ops, clientv3.OpPut(key, string(was)))
			if err := c.canBeUndone(key); err != nil {
				return true, err
			}
		}
	}
	for batch := range slices.Chunk(append(ops, last...), 100) {
		if _, err := c.store.client.Txn(ctx).Then(batch...).Commit(); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// canBeUndone fails for a key of something that has effects beyond itself.
// Custom resources have a group in their keys, which ends in a domain.
func (c *cluster) canBeUndone(key string) error {
	resource := strings.TrimPrefix(key, "/registry/")
	for _, known := range undone {
		if strings.HasPrefix(resource, known+"/") {
			return nil
		}
	}
	if group, _, found := strings.Cut(resource, "/"); found && strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
		return nil
	}
	return fmt.Errorf("reset: %s cannot be undone", key)
}

// resetRights waits until the server's authorizer knows of the reset. It learns
// in order: when it knows of a right given now, it knows what was before, and
// when it has forgotten that right, nothing is left.
func (c *cluster) resetRights(ctx context.Context) error {
	client, _, err := c.admin()
	if err != nil {
		return err
	}
	const name, group = "judge-reset", "judge.invalid"
	rule := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{group}, Resources: []string{resource}}}
	}
	own := metav1.ObjectMeta{Name: name}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	rights, once := client.RbacV1(), metav1.CreateOptions{}
	_, first := rights.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: own, Rules: rule("wide")}, once)
	_, second := rights.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: own, RoleRef: ref("ClusterRole"), Subjects: subjects}, once)
	_, third := rights.Roles(metav1.NamespaceDefault).Create(ctx, &rbacv1.Role{ObjectMeta: own, Rules: rule("narrow")}, once)
	_, fourth := rights.RoleBindings(metav1.NamespaceDefault).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: own, RoleRef: ref("Role"), Subjects: subjects}, once)
	if err := errors.Join(first, second, third, fourth); err != nil {
		return err
	}
	until := func(allowed bool) error {
		for _, resource := range []string{"wide", "narrow"} {
			for {
				review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{
						Namespace: metav1.NamespaceDefault, Verb: "get", Group: group, Resource: resource,
					}},
				}, metav1.CreateOptions{})
				if err != nil {
					return err
				}
				if review.Status.Allowed == allowed {
					break
				}
				select {
				case <-ctx.Done():
					return errors.New("reset: the authorizer does not follow")
				case <-time.After(5 * time.Millisecond):
				}
			}
		}
		return nil
	}
	if err := until(true); err != nil {
		return err
	}
	if _, err := c.restore(ctx); err != nil {
		return err
	}
	return until(false)
}

// caughtUp waits until the server's caches have seen the reset: a consistent
// list is answered from a cache that knows the newest revision.
func (c *cluster) caughtUp(ctx context.Context) error {
	client, config, err := c.admin()
	if err != nil {
		return err
	}
	lists, err := client.Discovery().ServerPreferredResources()
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || !slices.Contains(resource.Verbs, "watch") {
				continue
			}
			if _, err := meta.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{}); err != nil {
				return fmt.Errorf("reset: list %s: %w", resource.Name, err)
			}
		}
	}
	return nil
}

// resetFiles removes what others have put into the cluster's directory and
// writes the credentials again.
func (c *cluster) resetFiles() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !slices.Contains(c.moment.files, entry.Name()) {
			if err := os.RemoveAll(filepath.Join(c.dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	_, err = writeKubeconfigs(c.dir, c.servers[0].url(), c.pki)
	return err
}

// apis is what the first server says of its groups.
func (c *cluster) apis(ctx context.Context) ([]byte, error) {
	client, _, err := c.admin()
	if err != nil {
		return nil, err
	}
	return client.Discovery().RESTClient().Get().AbsPath("/apis").DoRaw(ctx)
}

// keys are all keys of kube-apiserver but those by which it lives.
func (s *store) keys(ctx context.Context) (map[string][]byte, error) {
	resp, err := s.client.Get(ctx, "/registry/", clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	keys := map[string][]byte{}
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		if !slices.ContainsFunc(alive, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			keys[key] = kv.Value
		}
	}
	return keys, nil
}
