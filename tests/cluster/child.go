package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is a subcommand of this binary running as a process of its own.
type child struct {
	name     string
	cmd      *exec.Cmd
	lifeline io.WriteCloser
	done     chan struct{} // closed once the process has been reaped
}

// startChild re-executes this binary with args, under the given name; its output
// is appended to log.
//
// The child's stdin is a pipe nobody writes to. The kernel closes it when this
// process goes away, however it goes away, and the child takes that as its end
// (see dieWithParent). Unlike a parent-death signal this works on any Unix and
// does not depend on which thread started the child.
func startChild(name, log string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(self, args...)
	cmd.Args[0] = name // the manager and the user agent of what it writes
	cmd.Stdout, cmd.Stderr = out, out
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, lifeline: lifeline, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // closes the pipe as well
		close(c.done)
	}()
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// exited says whether the process is gone.
func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end and kills it when it has not within grace, or
// when ctx ends. It returns once the process is gone and says whether it had to
// be killed.
func (c *child) stop(ctx context.Context, grace time.Duration) (killed bool) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return false
	case <-ctx.Done():
		c.kill()
		return true
	}
}

// kill ends the process at once and waits until it is gone.
func (c *child) kill() {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintf(os.Stderr, "judge: kill %s: %v\n", c.name, err)
	}
	<-c.done
}

// dieWithParent ends this process when the pipe on its stdin is closed.
func dieWithParent() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}
