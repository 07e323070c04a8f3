package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// parseResource reads G/V/R, or V/R for the core group.
func parseResource(s string) (schema.GroupVersionResource, error) {
	parts := strings.Split(s, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return schema.GroupVersionResource{}, fmt.Errorf("%q is not of the form GROUP/VERSION/RESOURCE", s)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, nil
}

// clientConfig is the configuration of a client that is not held back by
// client-go's own rate limit, which would only make tests slow.
func clientConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = "judge" // the binary's own name has a hash in it
	return config, nil
}
