package informerd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthapi "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	api "informerd.io/go/informerd/v1"
)

var quiet = WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))

// A pod, as far as the environment tells.
func inPod(t *testing.T, config *rest.Config) {
	before := inCluster
	inCluster = func() (*rest.Config, error) {
		if config == nil {
			return nil, rest.ErrNotInCluster
		}
		return rest.CopyConfig(config), nil
	}
	t.Cleanup(func() { inCluster = before })
	for _, variable := range []string{AddressVariable, CAFileVariable, TokenFileVariable} {
		t.Setenv(variable, "")
	}
}

func pod(t *testing.T) *rest.Config {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: "https://10.0.0.1:443", BearerTokenFile: token, TLSClientConfig: rest.TLSClientConfig{CAFile: "/pod/ca.crt"}}
}

// Who came with which credentials.
type caller struct {
	api.UnimplementedCacheServer
	health.Server
	tokens chan string
}

func (c *caller) ListInformers(ctx context.Context, _ *api.ListInformersRequest) (*api.ListInformersResponse, error) {
	sent, _ := metadata.FromIncomingContext(ctx)
	c.tokens <- strings.Join(sent.Get("authorization"), ",")
	return &api.ListInformersResponse{}, nil
}

func (c *caller) Check(ctx context.Context, request *healthapi.HealthCheckRequest) (*healthapi.HealthCheckResponse, error) {
	sent, _ := metadata.FromIncomingContext(ctx)
	if len(sent.Get("authorization")) > 0 {
		return nil, status.Error(codes.Internal, "a token was shown before it was known to whom")
	}
	if request.Service != "informerd.v1.Objects" {
		return nil, status.Error(codes.NotFound, "no such service")
	}
	return &healthapi.HealthCheckResponse{Status: healthapi.HealthCheckResponse_SERVING}, nil
}

func serve(t *testing.T, network, address string, options ...grpc.ServerOption) (string, *caller) {
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	called := &caller{tokens: make(chan string, 10)}
	api.RegisterCacheServer(server, called)
	healthapi.RegisterHealthServer(server, called)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().String(), called
}

func callOnce(t *testing.T, client *Client, called *caller, token string) {
	t.Helper()
	defer client.Close()
	if _, err := api.NewCacheClient(client.Connection()).ListInformers(bounded(t), &api.ListInformersRequest{}); err != nil {
		t.Fatal(err)
	}
	if sent := <-called.tokens; sent != token {
		t.Errorf("sent %q instead of %q", sent, token)
	}
}

func TestTheInformerdThatIsNamedIsTakenWithThePodsToken(t *testing.T) {
	cluster := pod(t)
	inPod(t, cluster)
	address, called := serve(t, "tcp", "127.0.0.1:0")
	t.Setenv(AddressVariable, "http://"+address)
	config, err := Config(quiet, WithProbeTimeout(time.Minute))
	if err != nil || config.Host != "http://"+address || config.BearerTokenFile != cluster.BearerTokenFile {
		t.Fatal(config, err)
	}
	client, err := Dial(quiet)
	if err != nil {
		t.Fatal(err)
	}
	callOnce(t, client, called, "Bearer secret")
}

func TestASocketIsLocal(t *testing.T) {
	cluster := pod(t)
	inPod(t, cluster)
	path := filepath.Join(t.TempDir(), "informerd.sock")
	_, called := serve(t, "unix", path)
	config, err := Config(quiet, WithAddress("unix://"+path), WithProbeTimeout(time.Minute))
	if err != nil || config.BearerTokenFile != cluster.BearerTokenFile {
		t.Fatal(config, err)
	}
	client, err := New(config, quiet)
	if err != nil {
		t.Fatal(err)
	}
	callOnce(t, client, called, "Bearer secret")
}

// In a process of its own: the proxies of the environment are read once.
func TestNoProxyStandsBetween(t *testing.T) {
	const proxied = "INFORMERD_TEST_PROXIED"
	if os.Getenv(proxied) != "" {
		client, err := Dial(quiet, WithAddress("http://192.0.2.1:8001"))
		if err != nil {
			t.Fatal(err)
		}
		client.connection.Connect()
		time.Sleep(time.Second)
		return
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	program := exec.Command(os.Args[0], "-test.run=^TestNoProxyStandsBetween$")
	to := "http://" + proxy.Addr().String()
	program.Env = append(os.Environ(), proxied+"=1", "HTTPS_PROXY="+to, "https_proxy="+to, "NO_PROXY=", "no_proxy=")
	if output, err := program.CombinedOutput(); err != nil {
		t.Fatal(err, string(output))
	}
	proxy.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := proxy.Accept(); err == nil {
		t.Error("the proxy was asked")
	}
}

func TestASidecarThatIsGuessedGetsNoCredentials(t *testing.T) {
	inPod(t, pod(t))
	if sidecar != "http://127.0.0.1:8001" {
		t.Error(sidecar)
	}
	address, called := serve(t, "tcp", "127.0.0.1:0")
	guess(t, "http://"+address)
	config, err := Config(quiet, WithProbeTimeout(time.Minute))
	if err != nil || config.Host != "http://"+address || config.BearerTokenFile != "" || config.BearerToken != "" {
		t.Error(config, err)
	}
	client, err := Dial(quiet, WithProbeTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	callOnce(t, client, called, "")
}

func TestAPodThatIsLedToInformerdGoesThere(t *testing.T) {
	address, called := serve(t, "tcp", "127.0.0.1:0")
	cluster := pod(t)
	cluster.Host = "http://" + address
	inPod(t, cluster)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	guess(t, "http://"+listener.Addr().String())
	client, err := Dial(quiet, WithProbeTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	callOnce(t, client, called, "Bearer secret")
}

// Where a sidecar would be.
func guess(t *testing.T, address string) {
	before := sidecar
	sidecar = address
	t.Cleanup(func() { sidecar = before })
}

func TestWithoutInformerdTheInClusterConfigurationIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // It takes connections and never speaks.
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	silent := WithAddress(listener.Addr().String())
	inPod(t, pod(t))
	for _, options := range [][]Option{
		{quiet, silent, WithProbeTimeout(50 * time.Millisecond)},
		{quiet, WithAddress("off")},
	} {
		if config, err := Config(options...); err != nil || config.Host != "https://10.0.0.1:443" {
			t.Error(config, err)
		}
	}
	if _, err := Dial(quiet, WithAddress("off")); err == nil {
		t.Error("a client of no informerd")
	}
	inPod(t, nil)
	_, err = Config(quiet, silent, WithProbeTimeout(50*time.Millisecond))
	if !errors.Is(err, rest.ErrNotInCluster) || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Error(err)
	}
}

func TestAServerThatIsNoInformerdIsNotTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	healthapi.RegisterHealthServer(server, health.NewServer()) // It knows no informerd.v1.Objects.
	go server.Serve(listener)
	defer server.Stop()
	inPod(t, pod(t))
	config, err := Config(quiet, WithAddress(listener.Addr().String()), WithProbeTimeout(time.Minute))
	if err != nil || config.Host != "https://10.0.0.1:443" {
		t.Error(config, err)
	}
}

func TestNoTokenLeavesTheMachineInPlainText(t *testing.T) {
	cluster := pod(t)
	inPod(t, cluster)
	for _, address := range []string{"http://10.0.0.7:8643", "http://informerd:8643", "informerd:80"} {
		if _, err := Config(quiet, WithAddress(address), WithTokenFile(cluster.BearerTokenFile)); err == nil {
			t.Errorf("%s: a token was to be sent", address)
		}
		found, err := settingsOf([]Option{WithAddress(address)}).find(cluster)
		if err != nil || found.config.BearerTokenFile != "" || found.config.BearerToken != "" {
			t.Errorf("%s: %v %v", address, found.config, err)
		}
		if _, err := New(&rest.Config{Host: found.config.Host, BearerToken: "secret"}); err == nil {
			t.Errorf("%s: New sends a token", address)
		}
	}
}

func TestAMistakeInAnAddressIsToldAndNotPassedOver(t *testing.T) {
	inPod(t, pod(t))
	for _, address := range []string{"localhost", "https://localhost", "unix://x", "http://a:1/path", "ftp://a:1", "http://:1"} {
		if _, err := Config(quiet, WithAddress(address)); err == nil || !strings.Contains(err.Error(), "is no address") {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := Dial(quiet, WithAddress(address)); err == nil {
			t.Error(address)
		}
	}
}

// An authority, and a certificate of it for 127.0.0.1.
func authority(t *testing.T) (ca []byte, certificate tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return ca, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestTLSIsVerifiedAgainstTheFileAsItIsNow(t *testing.T) {
	cluster := pod(t)
	inPod(t, cluster)
	right, certificate := authority(t)
	wrong, _ := authority(t)
	address, called := serve(t, "tcp", "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	file := filepath.Join(t.TempDir(), "ca.crt")
	t.Setenv(AddressVariable, "https://"+address)
	t.Setenv(CAFileVariable, file)
	write := func(ca []byte) {
		if err := os.WriteFile(file, ca, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(wrong)
	client, err := Dial(quiet)
	if err != nil {
		t.Fatal(err)
	}
	cache := api.NewCacheClient(client.Connection())
	if _, err := cache.ListInformers(bounded(t), &api.ListInformersRequest{}); err == nil || len(called.tokens) > 0 {
		t.Fatal("a server that nobody vouches for was believed")
	}
	if config, err := Config(quiet, WithProbeTimeout(time.Minute)); err != nil || config.Host != "https://10.0.0.1:443" {
		t.Error(config, err)
	}
	write(right)
	_, err = cache.ListInformers(bounded(t), &api.ListInformersRequest{}, grpc.WaitForReady(true))
	if err != nil || <-called.tokens != "Bearer secret" {
		t.Fatal(err)
	}
	client.Close()
	config, err := Config(quiet, WithProbeTimeout(time.Minute))
	if err != nil || config.Host != "https://"+address || config.CAFile != file || config.Insecure {
		t.Error(config, err)
	}
}
