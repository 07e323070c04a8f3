package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // the credential plugins a kubeconfig may name
)

// runKubectl hands the process over to kubectl. Kubectl reads os.Args by
// itself, so they are rewritten here.
func runKubectl(args []string) int {
	os.Args = append([]string{"kubectl"}, args...)
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it the way kubectl does and exits
	}
	return 0
}
