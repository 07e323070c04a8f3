package main

import (
	"context"
	"fmt"
	"log"

	informerd "informerd.io/go"
	corev1 "k8s.io/api/core/v1"
)

func main() {
	client, err := informerd.Dial()
	if err != nil {
		log.Fatal(err)
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	for event, err := range informerd.Watch[corev1.Pod](context.Background(), client, pods) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Type, event.Key) // event.Object is a *corev1.Pod
	}
}
