package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// runInformer runs informers until it is told to stop, printing what their
// handlers are called with and in the end what their stores hold.
func runInformer(args []string) int {
	s := &source{}
	flags := flag.NewFlagSet("informer", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server (required)")
	resource := flags.String("resource", "", "GROUP/VERSION/RESOURCE, or VERSION/RESOURCE of the core group (required)")
	flags.StringVar(&s.mode, "mode", "typed", "typed, dynamic or metadata")
	flags.BoolVar(&s.protobuf, "protobuf", false, "ask for protobuf (typed only)")
	flags.StringVar(&s.namespace, "namespace", "", "only this namespace")
	flags.StringVar(&s.labels, "label-selector", "", "only objects with these labels")
	flags.StringVar(&s.fields, "field-selector", "", "only objects with these fields")
	watchList := flags.Bool("watch-list", true, "start with a streaming list (WatchListClient)")
	until := flags.String("until-file", "", "stop when this file appears")
	count := flags.Int("count", 1, "number of independent informers")
	verbosity := flags.String("v", "0", "verbosity of client-go's log on stderr")
	_ = flags.Parse(args)

	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	_ = logging.Set("v", *verbosity)

	var err error
	if s.resource, err = parseResource(*resource); err != nil {
		return fail(err)
	}
	if err := setClientFeatures(*watchList); err != nil {
		return fail(err)
	}
	config, err := clientConfig(*kubeconfig)
	if err != nil {
		return fail(err)
	}

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	all := make([]*watched, *count)
	out := newEventWriter(os.Stdout, *count > 1)
	var running sync.WaitGroup
	for i := range all {
		if all[i], err = newWatched(s, i, out, config); err != nil {
			return fail(err)
		}
	}
	for _, w := range all {
		running.Go(func() { w.run(ctx) })
	}
	err = waitUntilTold(ctx, *until)
	cancel()
	waitBriefly(&running) // no callback comes after the final state
	for _, w := range all {
		w.printState()
	}
	out.close()
	if err != nil {
		return fail(err)
	}
	return 0
}

// waitBriefly waits for stopped informers, but not for one that sleeps between
// two attempts to reach its server: client-go sleeps up to half a minute there
// and does not wake up to be stopped, and it calls no handlers meanwhile.
func waitBriefly(running *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
	}
}

// setClientFeatures sets client-go's feature gates as their environment
// variables would. In this binary the variables have no effect by themselves:
// kube-apiserver's packages replace client-go's gates by their own.
func setClientFeatures(watchList bool) error {
	features := map[string]bool{}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if name, ok := strings.CutPrefix(name, "KUBE_FEATURE_"); ok {
			on, err := strconv.ParseBool(value)
			if err != nil {
				return fmt.Errorf("KUBE_FEATURE_%s: %w", name, err)
			}
			features[name] = on
		}
	}
	features["WatchListClient"] = watchList
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(features)
}

// waitUntilTold returns when the file exists, a line comes on stdin or ctx ends.
// It fails when stdin is a pipe that closes: whoever wanted to know is gone.
// Other kinds of stdin, like /dev/null, say nothing about the parent.
func waitUntilTold(ctx context.Context, file string) error {
	lines := make(chan error, 1)
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket|os.ModeCharDevice) != 0 {
		go func() {
			_, err := bufio.NewReader(os.Stdin).ReadString('\n')
			if err == nil || info.Mode()&os.ModeCharDevice == 0 {
				lines <- err
			}
		}()
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lines:
			if err != nil {
				return errors.New("stdin was closed")
			}
			return nil
		case <-tick.C:
			if _, err := os.Stat(file); file != "" && err == nil {
				return nil
			}
		}
	}
}

// resourceVersion is an object's resourceVersion, in every mode alike.
func resourceVersion(object any) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}

// objectKey is NAMESPACE/NAME, or NAME for an object of the cluster.
func objectKey(object any) string {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		return err.Error()
	}
	return key
}
