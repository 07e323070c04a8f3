package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
	_ "time/tzdata" // CronJob validation knows time zones without the host's files

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runAPIServer is the child process behind every kube-apiserver of a cluster.
func runAPIServer(args []string) int {
	dieWithParent()
	command := app.NewAPIServerCommand()
	command.SetArgs(args)
	return cli.Run(command)
}

// apiServer is one kube-apiserver of a cluster, running or not.
type apiServer struct {
	index   int
	dir     string // of the cluster
	port    *port
	flags   []string
	configs kubeconfigs
	child   *child // the last one started
}

// newAPIServer prepares a kube-apiserver: its port, kubeconfigs and flags.
func newAPIServer(index int, dir string, s *store, p *pki, extra []string) (*apiServer, error) {
	a := &apiServer{index: index, dir: dir}
	own := dir // kubeconfigs of the first server lie right in the cluster's directory
	if index > 0 {
		own = filepath.Join(dir, a.name())
	}
	if err := os.MkdirAll(own, 0o700); err != nil {
		return nil, err
	}
	var err error
	if a.port, err = reservePort(); err != nil {
		return nil, err
	}
	if a.configs, err = writeKubeconfigs(own, a.url(), p); err != nil {
		return nil, err
	}
	users := filepath.Join(dir, "tokens.csv")
	if err := writeTokens(users); err != nil {
		return nil, err
	}
	a.flags = append([]string{
		"--etcd-servers=" + s.url,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(a.port.number),
		"--permit-port-sharing=true", // see reservePort
		// Endpoints may not be loopback addresses, and a default route to take
		// another one from need not exist: use one reserved for documentation.
		fmt.Sprintf("--advertise-address=192.0.2.%d", index+1),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--tls-cert-file=" + p.serverCert,
		"--tls-private-key-file=" + p.serverKey,
		"--cert-dir=" + filepath.Join(dir, "apiserver-certs"),
		"--client-ca-file=" + p.ca,
		"--token-auth-file=" + users,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p.verifyKey,
		"--service-account-signing-key-file=" + p.signingKey,
		"--authorization-mode=Node,RBAC",
		"--disable-admission-plugins=ServiceAccount", // nobody creates the accounts
		"--allow-privileged=true",
	}, extra...)
	return a, nil
}

func (a *apiServer) name() string { return fmt.Sprintf("apiserver-%d", a.index) }
func (a *apiServer) url() string  { return a.port.url("https") }
func (a *apiServer) log() string  { return filepath.Join(a.dir, a.name()+".log") }

func (a *apiServer) running() bool { return a.child != nil && !a.child.exited() }

// start starts the server and returns when it is ready to be used.
func (a *apiServer) start(ctx context.Context) error {
	if a.running() {
		return fmt.Errorf("%s is running already", a.name())
	}
	var err error
	a.child, err = startChild("kube-apiserver", a.log(), append([]string{"apiserver"}, a.flags...)...)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", a.configs.Admin)
	if err != nil {
		return err
	}
	config.Timeout = 5 * time.Second
	config.QPS = -1 // no waits between the requests of a probe
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		err := probe(ctx, client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready in time, see %s: %w", a.name(), a.log(), err)
		case <-a.child.done:
			return fmt.Errorf("%s has exited, see %s", a.name(), a.log())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// probe fails until the server is ready and has made the objects that every
// cluster has, so that a test never sees a half-born cluster.
func probe(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	_, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}
