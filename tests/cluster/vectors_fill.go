package main

import (
	"fmt"
	"math/rand"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	extensionsfuzzer "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/randfill"
)

const (
	// last is the revision of all lists and bookmarks.
	last = 98765432109
	// refused is the namespace of objects that informerd refuses.
	refused = "refused"
	// perType is how many objects each type has, besides those that are refused.
	perType = 6
)

// odd are strings that the apiserver accepts in many places.
var odd = []string{"", "\xff", "a\xe2\x82b", "\xed\xa0\x80", "\ufffd", "é😀\u2028\u2029", "<&>\"\\/\b\x00\x7f", " ", strings.Repeat("long ", 100)}

// creations are odd times of creation. None is after the year 9999: tables with such a one are forwarded.
var creations = []time.Time{{}, time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Unix(-5_000_000_000, 0)}

// filler fills objects at random, all within what the apiserver accepts.
type filler struct {
	random *rand.Rand
	fuzz   *randfill.Filler
	rv     int
	rarity int // of odd strings
}

func newFiller(seed int64) *filler {
	source := rand.NewSource(seed)
	// Kubernetes' own leave these empty, or the same each time.
	more := func(serializer.CodecFactory) []any {
		return []any{
			func(s *core.PodStatus, c randfill.Continue) { c.FillNoCustom(s) },
			func(s *core.NamespaceStatus, c randfill.Continue) { c.FillNoCustom(s) },
			func(o *core.ObjectReference, c randfill.Continue) { c.FillNoCustom(o) },
		}
	}
	funcs := fuzzer.MergeFuzzerFuncs(apitesting.FuzzerFuncs, extensionsfuzzer.Funcs, more)
	return &filler{rand.New(source), fuzzer.FuzzerFor(funcs, source, legacyscheme.Codecs), 0, 0}
}

// objects are as they come from etcd: what conversion and defaulting have left of random values.
func (f *filler) objects(of schema.GroupResource, newFunc func() runtime.Object, namespaced bool, codec runtime.Codec) (objects []runtime.Object) {
	for n := 0; n < perType; n++ {
		objects = append(objects, f.object(of, newFunc, namespaced, codec, n))
	}
	if of.Resource == "roles" {
		for _, name := range []string{"a\xffb", "a\ufffdb"} {
			object := newFunc()
			accessor, _ := meta.Accessor(object)
			accessor.SetName(name)
			accessor.SetNamespace(refused)
			accessor.SetResourceVersion("7")
			objects = append(objects, object)
		}
	}
	return objects
}

func (f *filler) object(of schema.GroupResource, newFunc func() runtime.Object, namespaced bool, codec runtime.Codec, n int) runtime.Object {
	for attempt := 0; ; attempt++ {
		object := newFunc()
		if n < perType-1 { // the last one has nothing
			nils := []float64{.05, .3, .5, .9}[n%4]
			if of.Resource == "customresourcedefinitions" {
				nils = .7 // schemas have schemas
			}
			f.fuzz.NilChance(nils).NumElements(1, 2).Fill(object)
			if f.rarity = []int{16, 2, 4, 8}[n%4]; attempt < 6 {
				f.oddly(reflect.ValueOf(object).Elem())
			}
		}
		f.metadata(object, namespaced, n)
		accessor, _ := meta.Accessor(object)
		switch {
		case n == 0 && of.Resource == "configmaps":
			labels := map[string]string{}
			for i := 0; i < 70000; i++ {
				labels["l"+strconv.Itoa(i)] = ""
			}
			accessor.SetLabels(labels)
		case n == 1 && of.Resource == "configmaps":
			accessor.SetAnnotations(map[string]string{"huge": strings.Repeat("0123456789abcdef", 1<<16)})
		case n == 0 && of.Resource == "secrets":
			accessor.SetAnnotations(map[string]string{"huge": strings.Repeat("é<", 30000)})
		}
		stored, err := stored(object, codec)
		if err == nil {
			return stored
		} else if attempt > 10 {
			panic(fmt.Sprintf("%s: %v", of, err))
		}
	}
}

// stored is an object that was written to etcd, and read.
func stored(object runtime.Object, codec runtime.Codec) (read runtime.Object, err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("%v", what)
		}
	}()
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	rv := accessor.GetResourceVersion()
	bytes, err := runtime.Encode(codec, object)
	if err != nil {
		return nil, err
	}
	if read, err = runtime.Decode(codec, bytes); err == nil {
		accessor, err = meta.Accessor(read)
		accessor.SetResourceVersion(rv)
	}
	return read, err
}

// metadata replaces what the apiserver makes itself, or accepts only if it is valid.
func (f *filler) metadata(object runtime.Object, namespaced bool, n int) {
	m, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	f.rv += f.random.Intn(1 << uint(1+f.random.Intn(20)))
	m.SetResourceVersion(strconv.Itoa(f.rv + 1))
	m.SetName(fmt.Sprintf("o%d.%x", n, f.random.Uint32()))
	m.SetNamespace("")
	if namespaced {
		// In the order of their keys, in which a cache lists them.
		m.SetNamespace("ns" + strconv.Itoa(2*n/perType))
	}
	created := metav1.Unix(f.random.Int63n(1<<32), 0)
	if at := created.Unix() % 16; at < int64(len(creations)) {
		created = metav1.Time{Time: creations[at]}
	}
	m.SetCreationTimestamp(created)
	m.SetSelfLink("")
	m.SetGenerateName("")
	m.SetUID("")
	m.SetLabels(nil)
	m.SetAnnotations(nil)
	if n == perType-1 {
		return
	}
	m.SetUID(types.UID(fmt.Sprintf("%x-%x", f.random.Uint64(), f.random.Uint32())))
	if n%2 == 0 {
		m.SetGenerateName("o" + strconv.Itoa(n))
	}
	labels, annotations := map[string]string{}, map[string]string{}
	for i := f.random.Intn(5); i > 0; i-- {
		labels[fmt.Sprintf("%x.io/l", f.random.Intn(99))] = fmt.Sprintf("v%x", f.random.Intn(99))
		annotations[fmt.Sprintf("a%d", f.random.Intn(99))] = odd[f.random.Intn(len(odd))]
	}
	m.SetLabels(labels)
	m.SetAnnotations(annotations)
	finalizers := m.GetFinalizers()
	for i := range finalizers {
		finalizers[i] = "example.com/f" + strconv.Itoa(i)
	}
	entries := m.GetManagedFields()
	for i := range entries {
		entries[i].Operation = metav1.ManagedFieldsOperationApply
		entries[i].FieldsType = "FieldsV1"
		entries[i].FieldsV1 = &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{".":{},"f:a<b":{}}}}`)}
	}
	m.SetManagedFields(entries)
}

// oddly puts strange values in place of some.
func (f *filler) oddly(v reflect.Value) {
	if kind := v.Kind(); kind == reflect.Pointer || kind == reflect.Interface {
		if unknown, ok := v.Interface().(*runtime.Unknown); ok && f.random.Intn(2) == 0 {
			unknown.Raw = []byte("{\"apiVersion\":\"a/v1\",\"kind\":\"X\",\"a\xff\":[\"\xe2\x82\",{}]}")
		} else if !v.IsNil() {
			f.oddly(v.Elem())
		}
		return
	}
	if !v.CanSet() {
		return
	}
	switch v.Interface().(type) {
	case metav1.TypeMeta, metav1.FieldsV1:
		return
	case metav1.Time:
		if f.random.Intn(3) == 0 {
			v.Set(reflect.ValueOf(metav1.Time{Time: f.time()}))
		}
		return
	case metav1.MicroTime:
		if f.random.Intn(3) == 0 {
			v.Set(reflect.ValueOf(metav1.MicroTime{Time: f.time()}))
		}
		return
	}
	switch v.Kind() {
	case reflect.String:
		if one := f.random.Intn(f.rarity); one == 0 {
			v.SetString(odd[f.random.Intn(len(odd))])
		} else if one == 1 {
			v.SetString(fmt.Sprintf("s%x", f.random.Uint32()))
		}
	case reflect.Bool: // both are among the objects of each type
		v.SetBool(f.rarity == 2 || f.rarity != 4 && v.Bool())
	case reflect.Slice:
		for i := 0; i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8; i++ {
			f.oddly(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		sort.Slice(keys, func(a, b int) bool { return fmt.Sprint(keys[a]) < fmt.Sprint(keys[b]) })
		for _, key := range keys {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			f.oddly(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := 0; i < v.NumField(); i++ {
			if v.Type().Field(i).IsExported() {
				f.oddly(v.Field(i))
			}
		}
	}
}

func (f *filler) time() time.Time {
	times := []time.Time{{}, time.Unix(0, 0), time.Unix(-5_000_000_000, 0), time.Date(12345, 6, 7, 8, 9, 10, 0, time.UTC),
		time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC), time.Unix(f.random.Int63n(1<<33), 123456000)}
	return times[f.random.Intn(len(times))]
}

func isRefused(object runtime.Object) bool {
	accessor, err := meta.Accessor(object)
	return err == nil && accessor.GetNamespace() == refused
}

// customs are objects as a CustomResourceDefinition has them: they come as JSON, so all of their text is UTF-8.
func (f *filler) customs() (objects []*unstructured.Unstructured) {
	for n := 0; n < perType; n++ {
		partial := &metav1.PartialObjectMetadata{}
		if n < perType-1 {
			f.fuzz.NilChance([]float64{.05, .5, .9}[n%3]).NumElements(1, 3).Fill(partial)
		}
		f.metadata(partial, n%2 == 0, n)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(partial)
		if err != nil {
			panic(err)
		}
		content["apiVersion"], content["kind"] = "stable.example.com/v1", "CronTab"
		content["spec"] = map[string]any{"a": odd[n], "n": int64(n)}
		objects = append(objects, &unstructured.Unstructured{Object: valid(content).(map[string]any)})
	}
	return objects
}

func valid(value any) any {
	switch value := value.(type) {
	case string:
		return strings.ToValidUTF8(value, "?")
	case []any:
		for i := range value {
			value[i] = valid(value[i])
		}
	case map[string]any:
		for key := range value {
			value[key] = valid(value[key])
		}
	}
	return value
}

// discovery are descriptions of group versions with parts that are nil.
func (f *filler) discovery() (versions []apidiscovery.APIVersionDiscovery) {
	for n := 0; n < 8; n++ {
		version := apidiscovery.APIVersionDiscovery{}
		f.fuzz.NilChance(float64(n)/8).NumElements(1, 4).Fill(&version)
		version.Version, version.Freshness = "v"+strconv.Itoa(n), apidiscovery.DiscoveryFreshnessCurrent
		for i := range version.Resources {
			resource := &version.Resources[i]
			resource.Resource = fmt.Sprintf("r%d", i)
			if resource.Verbs != nil {
				resource.Verbs = append(resource.Verbs, [][]string{{"get"}, {"list", "watch"}, {}, {"watch", "x", "get"}}[i%4]...)
			}
			if i%2 == 0 {
				resource.Scope = apidiscovery.ScopeNamespace
			}
		}
		versions = append(versions, version)
	}
	return versions
}
