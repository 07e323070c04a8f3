// Command judge is a real Kubernetes control plane in one binary: etcd,
// kube-apiserver, kubectl and client-go informers of one exact version. Tests
// compare a server under test with what these do.
//
// Everything is one multi-call binary because linking Kubernetes is what takes
// time and disk; etcd and kube-apiserver still run as processes of their own so
// that a test can stop, kill and restart them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const usage = `usage: judge COMMAND [flags]

  cluster    run etcd and kube-apiserver until stdin closes
  kubectl    kubectl
  informer   run client-go informers and print what they see
  vectors    write what the apiserver's own code makes of random objects of every type
`

// commands are the subcommands; the ones a user does not start (the children
// of "cluster") are left out of the usage text.
var commands = map[string]func(args []string) int{
	"cluster":   runCluster,
	"kubectl":   runKubectl,
	"informer":  runInformer,
	"apiserver": runAPIServer,
	"etcd":      runEtcd,
}

func main() {
	if strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "kubectl" {
		os.Exit(runKubectl(os.Args[1:]))
	}
	if len(os.Args) > 1 {
		if run, ok := commands[os.Args[1]]; ok {
			os.Exit(run(os.Args[2:]))
		}
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
}

// fail reports why a subcommand cannot go on and returns its exit status.
func fail(err error) int {
	fmt.Fprintln(os.Stderr, "judge:", err)
	return 1
}
