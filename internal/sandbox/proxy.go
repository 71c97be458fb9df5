package sandbox

import (
	"errors"
	"io"
	"net"
)

type proxy struct{}

func (p *proxy) close() {}

func takeListener(conn *net.UnixConn, n Network) (io.Reader, *proxy, error) {
	return nil, nil, errors.New("todo")
}
