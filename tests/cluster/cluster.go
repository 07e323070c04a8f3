package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// cluster is an etcd with its kube-apiservers.
type cluster struct {
	dir     string
	timeout time.Duration // for anything that waits on a server
	flags   []string      // extra ones of every kube-apiserver
	store   *store
	pki     *pki
	servers []*apiServer
	moment  moment // when it was ready
}

// description is the line a cluster prints once it can be used.
type description struct {
	Server       string      `json:"server"`
	Etcd         string      `json:"etcd"`
	EtcdPid      int         `json:"etcdPid"`
	APIServerPid int         `json:"apiserverPid"`
	Dir          string      `json:"dir"`
	CA           string      `json:"ca"`
	ClientCert   string      `json:"clientCert"`
	ClientKey    string      `json:"clientKey"`
	Kubeconfigs  kubeconfigs `json:"kubeconfigs"`
	Version      string      `json:"version"`
}

// runCluster runs a cluster until stdin closes or a signal comes. Its stdin is
// the parent's end of the rope: whatever becomes of the parent, it closes.
func runCluster(args []string) int {
	c := &cluster{}
	flags := flag.NewFlagSet("cluster", flag.ExitOnError)
	flags.StringVar(&c.dir, "dir", "", "directory for data, credentials and logs (required)")
	temporary := flags.Bool("temporary", false, "remove the directory at the end")
	flags.DurationVar(&c.timeout, "timeout", 3*time.Minute, "how long a server may take to become ready")
	flags.Func("apiserver-flag", "K=V flag for kube-apiserver (repeatable)", func(s string) error {
		c.flags = append(c.flags, "--"+strings.TrimLeft(s, "-"))
		return nil
	})
	_ = flags.Parse(args)
	if c.dir == "" {
		return fail(fmt.Errorf("cluster: --dir is required"))
	}

	// Set up before anything is started: a parent that dies early must not
	// leave half a cluster behind.
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 16<<20) // a line may carry a manifest
		for in.Scan() {
			lines <- in.Text()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- c.start(ctx) }()

	out := json.NewEncoder(os.Stdout)
	var queue []string // commands that came before the cluster was ready
	for {
		select {
		case <-term:
			cancel()
		case line, open := <-lines:
			if open {
				queue = append(queue, line)
				continue
			}
			cancel()
		case err := <-started:
			defer c.close()
			if err != nil {
				return fail(err)
			}
			_ = out.Encode(c.describe())
			c.serve(ctx, term, queue, lines, out)
			c.close()
			if *temporary {
				_ = os.RemoveAll(c.dir)
			}
			return 0
		}
		<-started // returns soon, being canceled
		c.close()
		return 0
	}
}

func (c *cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var err error
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	if err := logTo(filepath.Join(c.dir, "judge.log")); err != nil {
		return err
	}
	if c.store, err = openStore(c.dir); err != nil {
		return err
	}
	if c.pki, err = newPKI(c.dir); err != nil {
		return err
	}
	if err := c.store.connect(ctx); err != nil {
		return err
	}
	if _, err = c.addServer(ctx); err != nil {
		return err
	}
	return c.remember(ctx)
}

// logTo sends this process's own log, that of its etcd client, to a file. The
// client's attempts to connect too early would only be noise on stderr.
func logTo(file string) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "log_file": file,
	} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

// addServer starts one more kube-apiserver on the cluster's etcd.
func (c *cluster) addServer(ctx context.Context) (*apiServer, error) {
	a, err := newAPIServer(len(c.servers), c.dir, c.store, c.pki, c.flags)
	if err != nil {
		return nil, err
	}
	err = a.start(ctx)
	if a.child != nil {
		c.servers = append(c.servers, a)
	}
	return a, err
}

func (c *cluster) describe() description {
	first := c.servers[0]
	return description{
		Server: first.url(), Etcd: c.store.url,
		EtcdPid: c.store.child.pid(), APIServerPid: first.child.pid(),
		Dir: c.dir, CA: c.pki.ca, ClientCert: c.pki.clientCert, ClientKey: c.pki.clientKey,
		Kubeconfigs: first.configs, Version: version.Get().GitVersion,
	}
}

// close ends all processes of the cluster. Its data is of no use to anybody, so
// none of them is given time.
func (c *cluster) close() {
	for _, a := range c.servers {
		if a.child != nil {
			a.child.kill()
		}
	}
	if c.store != nil {
		c.store.child.kill()
	}
}
