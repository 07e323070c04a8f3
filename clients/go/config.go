package informerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/client-go/rest"
)

// The variables that tell a program where informerd is. Without them, Config and Dial look for a sidecar.
const (
	// http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH; "off" turns informerd off.
	AddressVariable = "INFORMERD_ADDRESS"
	// The CA of an https:// address, in PEM. Without it, the ca.crt of the pod's service account, or the system's.
	CAFileVariable = "INFORMERD_CA_FILE"
	// A bearer token, read again as it changes. Without it, the token of the pod's service account.
	TokenFileVariable = "INFORMERD_TOKEN_FILE"
)

const (
	off          = "off"
	probeTimeout = time.Second
)

// Variables for tests: the files of a pod lie at fixed paths, and a port may be in use.
var (
	inCluster = rest.InClusterConfig
	sidecar   = "http://127.0.0.1:8001"
)

// Option says something about the informerd and the connection to it.
type Option func(*settings)

type settings struct {
	address, caFile, tokenFile string
	probe                      time.Duration
	logger                     *slog.Logger
	dial                       []grpc.DialOption
}

// WithAddress stands before INFORMERD_ADDRESS.
func WithAddress(address string) Option { return func(s *settings) { s.address = address } }

// WithCAFile stands before INFORMERD_CA_FILE.
func WithCAFile(path string) Option { return func(s *settings) { s.caFile = path } }

// WithTokenFile stands before INFORMERD_TOKEN_FILE.
func WithTokenFile(path string) Option { return func(s *settings) { s.tokenFile = path } }

// WithProbeTimeout bounds how long Config and Dial wait for an informerd to answer, by default a second.
func WithProbeTimeout(timeout time.Duration) Option { return func(s *settings) { s.probe = timeout } }

// WithLogger takes what is told of outages and retries. The default is slog.Default().
func WithLogger(logger *slog.Logger) Option { return func(s *settings) { s.logger = logger } }

// WithDialOptions adds to the options of the gRPC connection.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.dial = append(s.dial, options...) }
}

func settingsOf(options []Option) *settings {
	s := &settings{
		address:   os.Getenv(AddressVariable),
		caFile:    os.Getenv(CAFileVariable),
		tokenFile: os.Getenv(TokenFileVariable),
		probe:     probeTimeout,
	}
	for _, option := range options {
		option(s)
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	return s
}

// Config returns the configuration of an informerd that answers now: the one that INFORMERD_ADDRESS names, or else a
// sidecar at http://127.0.0.1:8001. If none answers within a second, it returns rest.InClusterConfig. The choice is made
// once, by this call.
//
// The token of the pod's service account goes to an address that was named, and never in plain text to another machine. A
// sidecar that was only guessed gets no credentials.
func Config(options ...Option) (*rest.Config, error) {
	s := settingsOf(options)
	cluster, clusterErr := inCluster()
	if s.address == off {
		return cluster, clusterErr
	}
	found, err := s.find(cluster)
	if err != nil {
		return nil, err // A mistake in what was named is never hidden by falling back.
	}
	probeErr := s.answers(found)
	if probeErr == nil {
		return found.config, nil
	}
	if clusterErr != nil {
		return nil, fmt.Errorf("no informerd answers at %s (%w), and there is no in-cluster configuration: %w",
			found.address, probeErr, clusterErr)
	}
	level := slog.LevelInfo
	if found.named {
		level = slog.LevelWarn
	}
	s.logger.Log(context.Background(), level, "no informerd answers; using the in-cluster configuration",
		"address", found.address, "error", probeErr)
	return cluster, nil
}

// Dial returns a client of the informerd that INFORMERD_ADDRESS names, or else of a sidecar at http://127.0.0.1:8001, or
// else of the in-cluster address if an informerd answers there. If none does, the client is one of the sidecar's address,
// and waits for it.
func Dial(options ...Option) (*Client, error) {
	s := settingsOf(options)
	if s.address == off {
		return nil, fmt.Errorf("%s is %q: there is no gRPC without informerd", AddressVariable, off)
	}
	cluster, clusterErr := inCluster()
	found, err := s.find(cluster)
	if err != nil {
		return nil, err
	}
	if !found.named && clusterErr == nil && s.answers(found) != nil {
		if led := (target{config: cluster, address: cluster.Host, found: true}); s.answers(led) == nil {
			found = led
		}
	}
	return s.client(found)
}

// An informerd and how to speak to it.
type target struct {
	config  *rest.Config
	address string
	// Somebody has said so, and it is not a guess.
	named bool
	// It is no configuration of the caller's, who may want a proxy.
	found bool
}

func (s *settings) find(cluster *rest.Config) (target, error) {
	found := target{address: s.address, named: s.address != "", found: true}
	if !found.named {
		found.address = sidecar
	}
	scheme, where, ok := strings.Cut(found.address, "://")
	if !ok {
		scheme, where = "http", found.address
	}
	config := &rest.Config{}
	local := false
	switch scheme {
	case "unix":
		if !filepath.IsAbs(where) {
			return found, fmt.Errorf("%q is no address: want unix:///PATH", found.address)
		}
		config.Host, local = "http://localhost", true
		config.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", where)
		}
	case "http", "https":
		address, err := url.Parse(scheme + "://" + where)
		if err != nil || address.Port() == "" || address.Hostname() == "" || strings.Trim(address.Path, "/") != "" {
			return found, fmt.Errorf("%q is no address: want http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH",
				found.address)
		}
		config.Host = scheme + "://" + address.Host
		local = isLoopback(address.Hostname())
	default:
		return found, fmt.Errorf("%q is no address: want http://ADDRESS:PORT, https://ADDRESS:PORT or unix:///PATH", found.address)
	}
	if scheme == "https" {
		config.CAFile = s.caFile
		if config.CAFile == "" && cluster != nil {
			config.CAFile = cluster.CAFile
		}
	}
	safe := scheme == "https" || local
	switch {
	case s.tokenFile != "" && !safe:
		return found, fmt.Errorf("%s: a token is not sent in plain text to another machine; use https", found.address)
	case s.tokenFile != "":
		config.BearerTokenFile = s.tokenFile
	case found.named && safe && cluster != nil:
		config.BearerTokenFile = cluster.BearerTokenFile
	}
	found.config = config
	return found, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Whether an informerd is there and ready. Nobody else has a service of that name, and the check needs no credentials:
// they are not shown to somebody who might not be informerd.
func (s *settings) answers(at target) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.probe)
	defer cancel()
	bare := at
	bare.config = rest.AnonymousClientConfig(at.config)
	bare.config.Dial = at.config.Dial
	client, err := s.client(bare)
	if err != nil {
		return err
	}
	defer client.Close()
	request := &health.HealthCheckRequest{Service: "informerd.v1.Objects"}
	answer, err := health.NewHealthClient(client.connection).Check(ctx, request)
	if err == nil && answer.Status != health.HealthCheckResponse_SERVING {
		err = errors.New("it is not ready")
	}
	return err
}
