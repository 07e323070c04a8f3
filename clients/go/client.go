// Package informerd reads the caches of informerd by gRPC: Watch ranges over the changes of a selection, a Cache keeps its
// objects, and a Queue hands its keys to handlers. Each goes on by itself when the connection is lost or informerd is
// restarted, and ends with an error when asking again cannot help. Config finds an informerd for other clients, as a
// rest.Config.
package informerd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"k8s.io/client-go/rest"
)

// An object may be larger than gRPC's 4 MiB.
const largestMessage = 64 << 20

// Client is a connection to one informerd. It connects when it is first used, and again whenever that is needed.
type Client struct {
	connection *grpc.ClientConn
	address    string
	logger     *slog.Logger
	// Another try may succeed where credentials are refused.
	refreshable bool
	// What all calls of the client suffer from.
	unreachable outage
}

// New returns a client of the informerd that a rest.Config names. Of its credentials, tokens, token files and client
// certificates are used.
func New(config *rest.Config, options ...Option) (*Client, error) {
	return settingsOf(options).client(target{config: config, address: config.Host})
}

// Connection is for calls of the generated stubs in informerd.io/go/informerd/v1.
func (c *Client) Connection() *grpc.ClientConn { return c.connection }

// Close ends the connection and what runs over it.
func (c *Client) Close() error { return c.connection.Close() }

func (s *settings) client(at target) (*Client, error) {
	config := at.config
	address, err := url.Parse(config.Host)
	if err != nil || address.Host == "" {
		return nil, fmt.Errorf("%q is no address: want http://ADDRESS:PORT or https://ADDRESS:PORT", config.Host)
	}
	secure := address.Scheme == "https"
	host := address.Host
	if address.Port() == "" {
		host = net.JoinHostPort(address.Hostname(), map[bool]string{true: "443", false: "80"}[secure])
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent("informerd-go"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largestMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if secure {
		transport, err := newTransport(config)
		if err != nil {
			return nil, err
		}
		options = append(options, grpc.WithTransportCredentials(transport))
	}
	if at.found {
		options = append(options, grpc.WithNoProxy()) // informerd is near, and a proxy must not see the token.
	}
	if config.Dial != nil {
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return config.Dial(ctx, "tcp", address)
		}))
		host = "passthrough:///" + host
	}
	if config.BearerToken != "" || config.BearerTokenFile != "" {
		if !secure && config.Dial == nil && !isLoopback(address.Hostname()) {
			return nil, fmt.Errorf("%s: a token is not sent in plain text to another machine; use https", config.Host)
		}
		options = append(options, grpc.WithPerRPCCredentials(token{config}))
	}
	connection, err := grpc.NewClient(host, append(options, s.dial...)...)
	if err != nil {
		return nil, err
	}
	refreshable := config.BearerTokenFile != "" || config.CertFile != ""
	return &Client{
		connection:  connection,
		address:     at.address,
		logger:      s.logger,
		refreshable: refreshable,
		unreachable: outage{what: "informerd", fails: "does not answer", recovers: "answers again"},
	}, nil
}

// TLS with the files as they are when a connection is made: CAs and certificates are rotated.
type transport struct {
	credentials.TransportCredentials
	config *rest.Config
}

func newTransport(config *rest.Config) (credentials.TransportCredentials, error) {
	first, err := tlsConfig(config)
	if err != nil {
		return nil, err
	}
	return &transport{credentials.NewTLS(first), config}, nil
}

func tlsConfig(config *rest.Config) (*tls.Config, error) {
	made, err := rest.TLSConfigFor(config)
	if err == nil && made == nil {
		made = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return made, err
}

func (t *transport) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	fresh, err := tlsConfig(t.config)
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(fresh).ClientHandshake(ctx, authority, raw)
}

func (t *transport) Clone() credentials.TransportCredentials {
	return &transport{t.TransportCredentials.Clone(), t.config}
}

// The token, as the file has it now.
type token struct{ config *rest.Config }

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	bearer := t.config.BearerToken
	if t.config.BearerTokenFile != "" {
		read, err := os.ReadFile(t.config.BearerTokenFile)
		if err != nil {
			return nil, err
		}
		bearer = strings.TrimSpace(string(read))
	}
	if bearer == "" {
		return nil, errors.New("the token is empty")
	}
	return map[string]string{"authorization": "Bearer " + bearer}, nil
}

// Where a token may go in plain text is decided when the client is made.
func (token) RequireTransportSecurity() bool { return false }
