package main

import (
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// admin is a client of the first server that may do everything, and its
// configuration.
func (c *cluster) admin() (*kubernetes.Clientset, *rest.Config, error) {
	config, err := clientConfig(c.servers[0].configs.Admin)
	if err != nil {
		return nil, nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	return client, config, err
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
