// The OTLP receiver of the OpenTelemetry Collector, without the rest of it: what it has taken is printed as a JSON line a
// message, in OTLP's own JSON. The first line names its two addresses. It ends when stdin does.
//
// Arguments: a certificate and its key, if it is to speak TLS.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

// Ports are looked for before the receiver listens on them, and somebody else may be faster.
const attempts = 10

var lines sync.Mutex

func say(key string, message []byte) error {
	lines.Lock()
	defer lines.Unlock()
	_, err := fmt.Printf("{%q:%s}\n", key, message)
	return err
}

func takeTraces(_ context.Context, traces ptrace.Traces) error {
	message, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return err
	}
	return say("traces", message)
}

func takeMetrics(_ context.Context, metrics pmetric.Metrics) error {
	message, err := (&pmetric.JSONMarshaler{}).MarshalMetrics(metrics)
	if err != nil {
		return err
	}
	return say("metrics", message)
}

func free() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func start(ctx context.Context, tls map[string]any) (addresses map[string]string, err error) {
	addresses = map[string]string{}
	protocols := map[string]any{}
	for _, protocol := range []string{"grpc", "http"} {
		if addresses[protocol], err = free(); err != nil {
			return nil, err
		}
		protocols[protocol] = map[string]any{"endpoint": addresses[protocol], "tls": tls}
	}
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"protocols": protocols}).Unmarshal(config); err != nil {
		return nil, err
	}
	settings := receiver.Settings{
		ID:                component.NewID(factory.Type()),
		TelemetrySettings: componenttest.NewNopTelemetrySettings(),
	}
	traces, err := consumer.NewTraces(takeTraces)
	if err != nil {
		return nil, err
	}
	metrics, err := consumer.NewMetrics(takeMetrics)
	if err != nil {
		return nil, err
	}
	ofTraces, err := factory.CreateTraces(ctx, settings, config, traces)
	if err != nil {
		return nil, err
	}
	ofMetrics, err := factory.CreateMetrics(ctx, settings, config, metrics)
	if err != nil {
		return nil, err
	}
	for _, receiver := range []component.Component{ofTraces, ofMetrics} {
		if err := receiver.Start(ctx, componenttest.NewNopHost()); err != nil {
			receiver.Shutdown(ctx)
			return nil, err
		}
	}
	return addresses, nil
}

func run() (err error) {
	var tls map[string]any
	if len(os.Args) == 3 {
		tls = map[string]any{"cert_file": os.Args[1], "key_file": os.Args[2]}
	}
	for range attempts {
		var addresses map[string]string
		if addresses, err = start(context.Background(), tls); err != nil {
			continue
		}
		first, err := json.Marshal(addresses)
		if err != nil {
			return err
		}
		fmt.Println(string(first))
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}
	return err
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
