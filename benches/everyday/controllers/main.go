// Command controllers is kube-controller-manager and kube-scheduler, by the name that its first argument is.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	os.Args = os.Args[1:] // The first is the user agent now, and the manager of what they write.
	var command *cobra.Command
	switch {
	case len(os.Args) > 0 && os.Args[0] == "kube-controller-manager":
		command = manager.NewControllerManagerCommand()
	case len(os.Args) > 0 && os.Args[0] == "kube-scheduler":
		command = scheduler.NewSchedulerCommand()
	default:
		fmt.Fprintln(os.Stderr, "usage: controllers kube-controller-manager|kube-scheduler [flags]")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
