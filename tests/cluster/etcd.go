package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// runEtcd is the child process behind a cluster's store: one member, no TLS.
func runEtcd(args []string) int {
	dieWithParent()
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dir := flags.String("dir", "", "data directory")
	client := flags.String("client", "", "URL to serve clients at")
	peer := flags.String("peer", "", "URL to serve peers at")
	_ = flags.Parse(args)

	cfg := embed.NewConfig()
	cfg.Name = "judge"
	cfg.Dir = *dir
	for target, value := range map[*[]url.URL]string{
		&cfg.ListenClientUrls: *client, &cfg.AdvertiseClientUrls: *client,
		&cfg.ListenPeerUrls: *peer, &cfg.AdvertisePeerUrls: *peer,
	} {
		parsed, err := url.Parse(value)
		if err != nil {
			return fail(err)
		}
		*target = []url.URL{*parsed}
	}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.SocketOpts.ReusePort = true // the parent holds the ports, see reservePort
	cfg.UnsafeNoFsync = true        // the data never outlives the test
	// The one member elects itself when an election is due, and it starts no earlier than that.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.LogLevel = "warn"
	cfg.LogOutputs = []string{"stderr"}

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return fail(err)
	}
	defer etcd.Close()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM, os.Interrupt)
	select {
	case <-term:
		return 0
	case err := <-etcd.Err():
		return fail(err)
	}
}

// store is the cluster's etcd, a child of this process.
type store struct {
	url    string
	child  *child
	client *clientv3.Client
}

// openStore starts an etcd below dir.
func openStore(dir string) (*store, error) {
	client, err := reservePort()
	if err != nil {
		return nil, err
	}
	peer, err := reservePort()
	if err != nil {
		return nil, err
	}
	address := client.url("http")
	child, err := startChild("etcd", filepath.Join(dir, "etcd.log"), "etcd",
		"--dir", filepath.Join(dir, "etcd"), "--client", address, "--peer", peer.url("http"))
	if err != nil {
		return nil, err
	}
	return &store{url: address, child: child}, nil
}

// connect returns once etcd answers.
func (s *store) connect(ctx context.Context) error {
	every := func(do func() error) error {
		for {
			err := do()
			if err == nil {
				return nil
			}
			if s.child.exited() {
				return errors.New("etcd has exited, see etcd.log")
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("etcd at %s does not answer: %w", s.url, err)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	// The client comes after the port is open: it waits for a second after a
	// connection that was refused.
	err := every(func() error {
		probe, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			return err
		}
		return probe.Close()
	})
	if err != nil {
		return err
	}
	s.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{s.url},
		Logger:    zap.NewNop(),
	})
	if err != nil {
		return err
	}
	return every(func() error {
		once, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := s.revision(once)
		return err
	})
}

// revision is the store's current revision.
func (s *store) revision(ctx context.Context) (int64, error) {
	resp, err := s.client.Get(ctx, "compact_rev_key", clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// compact drops all history before the current revision and returns that
// revision. It does so as another kube-apiserver of the cluster would, through
// the key they agree on: kube-apiserver learns from it which of its cached
// snapshots it must not answer from any more. A bare compaction of etcd would
// leave lists of old revisions working that fail in a real cluster. It looks for
// a change only every 15 seconds, or when it is started anew.
func (s *store) compact(ctx context.Context) (int64, error) {
	for range 10 {
		key, err := s.client.Get(ctx, "compact_rev_key")
		if err != nil {
			return 0, err
		}
		var version int64
		if len(key.Kvs) > 0 {
			version = key.Kvs[0].Version
		}
		revision := key.Header.Revision
		txn, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.Version("compact_rev_key"), "=", version)).
			Then(clientv3.OpPut("compact_rev_key", strconv.FormatInt(revision, 10))).
			Commit()
		if err != nil {
			return 0, fmt.Errorf("compact to %d: %w", revision, err)
		}
		if txn.Succeeded {
			_, err := s.client.Compact(ctx, revision)
			return revision, err
		}
		// A kube-apiserver was faster in changing the key: look again.
	}
	return 0, errors.New("compact: others keep compacting")
}
