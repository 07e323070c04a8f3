// Prints the objects of one selection, and then every change of them.
//
//	go run ./consumer [-namespace N] [-selector L] [GROUP/]VERSION/RESOURCE
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	informerd "informerd.io/go"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	namespace := flag.String("namespace", "", "only this namespace")
	selector := flag.String("selector", "", "label selector")
	flag.Parse()
	resource, err := informerd.ParseResource(flag.Arg(0))
	if err != nil {
		log.Fatal(err)
	}
	client, err := informerd.Dial()
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for event, err := range informerd.Watch[unstructured.Unstructured](ctx, client, resource,
		informerd.Namespace(*namespace), informerd.Labels(*selector)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Type, event.Key, event.Key.ResourceVersion)
	}
}
