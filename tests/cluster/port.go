package main

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// port is a TCP port of 127.0.0.1 that stays reserved for a server across its
// restarts.
//
// A port that was merely found free can be taken by any other process while the
// server is down. Here a bound socket that never listens keeps everybody else
// out, and SO_REUSEPORT on both sides lets the server in. Connections only reach
// listening sockets, so a stopped server still refuses them.
type port struct {
	fd     int
	number int
}

func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	syscall.CloseOnExec(fd)
	p := &port{fd: fd}
	if err := p.bind(); err != nil {
		p.release()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *port) bind() error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	name, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	p.number = name.(*unix.SockaddrInet4).Port
	return nil
}

func (p *port) release() { _ = unix.Close(p.fd) }

func (p *port) url(scheme string) string {
	return fmt.Sprintf("%s://127.0.0.1:%d", scheme, p.number)
}
