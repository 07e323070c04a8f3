package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// runInformer runs client-go's informers (informers.go, which is the file of
// tests/clients/go). It sets client-go's feature gates as their environment
// variables would: in this binary these have no effect by themselves, because
// kube-apiserver's packages replace client-go's gates by their own.
func runInformer(args []string) int {
	features := map[string]bool{}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		if name, ok := strings.CutPrefix(name, "KUBE_FEATURE_"); ok {
			on, err := strconv.ParseBool(value)
			if err != nil {
				return fail(fmt.Errorf("KUBE_FEATURE_%s: %w", name, err))
			}
			features[name] = on
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(features); err != nil {
		return fail(err)
	}
	return runInformers(args)
}
