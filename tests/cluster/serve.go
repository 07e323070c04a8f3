package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// stopGrace bounds a graceful stop of kube-apiserver. It often ends in a second,
// but one stopped soon after its start, or with requests open, may take up to a
// minute, which no test wants to wait for.
const stopGrace = 5 * time.Second

// answer is the reply to one command; fields that say nothing are left out.
type answer struct {
	OK           bool         `json:"ok"`
	Error        string       `json:"error,omitempty"`
	Revision     int64        `json:"revision,omitempty"`
	Index        *int         `json:"index,omitempty"`
	Server       string       `json:"server,omitempty"`
	APIServerPid int          `json:"apiserverPid,omitempty"`
	Killed       bool         `json:"killed,omitempty"` // a graceful stop took too long
	Kubeconfigs  *kubeconfigs `json:"kubeconfigs,omitempty"`
	Token        string       `json:"token,omitempty"`
}

// serve answers the commands in queue and then those from lines, one JSON line
// each, until lines closes or a signal comes. The end cuts a running command
// short: it may wait on a server that will never be ready.
func (c *cluster) serve(ctx context.Context, term <-chan os.Signal, queue []string, lines <-chan string, out *json.Encoder) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := make(chan struct{}, 1)
	busy := false
	for {
		if !busy && len(queue) > 0 {
			line := queue[0]
			queue, busy = queue[1:], true
			go func() {
				_ = out.Encode(c.answer(ctx, line))
				idle <- struct{}{}
			}()
		}
		select {
		case <-idle:
			busy = false
			continue
		case line, open := <-lines:
			if open {
				queue = append(queue, line)
				continue
			}
		case <-term:
		}
		cancel()
		if busy {
			<-idle
		}
		return
	}
}

func (c *cluster) answer(ctx context.Context, line string) answer {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if manifest, found := strings.CutPrefix(line, "apply "); found {
		if err := c.apply(ctx, manifest); err != nil {
			return answer{Error: err.Error()}
		}
		return answer{OK: true}
	}
	a, err := c.command(ctx, strings.Fields(line))
	if err != nil {
		return answer{Error: err.Error()}
	}
	a.OK = true
	return a
}

// command runs one command. Those about a server take its index, by default
// that of the first one.
func (c *cluster) command(ctx context.Context, words []string) (a answer, err error) {
	if len(words) == 0 {
		return a, fmt.Errorf("empty command")
	}
	switch words[0] {
	case "revision":
		a.Revision, err = c.store.revision(ctx)
		return a, err
	case "compact":
		a.Revision, err = c.store.compact(ctx)
		return a, err
	case "reset":
		return a, c.reset(ctx)
	case "token":
		if len(words) != 3 {
			return a, fmt.Errorf("token takes a namespace and a service account")
		}
		a.Token, err = c.token(ctx, words[1], words[2])
		return a, err
	case "second-apiserver":
		server, err := c.addServer(ctx)
		if err != nil {
			return a, err
		}
		return describeServer(server), nil
	}

	index := 0
	if len(words) > 1 {
		if index, err = strconv.Atoi(words[1]); err != nil {
			return a, fmt.Errorf("%q is no index of a server", words[1])
		}
	}
	if index < 0 || index >= len(c.servers) {
		return a, fmt.Errorf("there is no server %d", index)
	}
	server := c.servers[index]
	switch words[0] {
	case "stop-apiserver":
		a.Killed = server.child.stop(ctx, stopGrace)
		return a, nil
	case "kill-apiserver":
		server.child.kill()
		return a, nil
	case "start-apiserver":
		if err := server.start(ctx); err != nil {
			return a, err
		}
		return describeServer(server), nil
	case "restart-apiserver":
		killed := server.child.stop(ctx, stopGrace)
		if err := server.start(ctx); err != nil {
			return a, err
		}
		a = describeServer(server)
		a.Killed = killed
		return a, nil
	}
	return a, fmt.Errorf("unknown command %q", words[0])
}

func describeServer(s *apiServer) answer {
	return answer{Index: &s.index, Server: s.url(), APIServerPid: s.child.pid(), Kubeconfigs: &s.configs}
}
