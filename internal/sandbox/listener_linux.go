package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// takeListener receives the socket that the stage has opened inside, and serves on it, as a proxy or with serve. Read
// what the stage sends next from rest: if the stage failed, that is its report.
func takeListener(conn *net.UnixConn, n Network, serve func(net.Conn)) (rest io.Reader, p *proxy, err error) {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	got, gotOOB, _, _, err := conn.ReadMsgUnix(b[:], oob)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("take the proxy's port: %w", err)
	}
	if gotOOB == 0 {
		return io.MultiReader(bytes.NewReader(b[:got]), conn), nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:gotOOB])
	if err != nil {
		return nil, nil, fmt.Errorf("take the proxy's port: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil || len(fds) != 1 {
			return nil, nil, fmt.Errorf("take the proxy's port: %d descriptors: %w", len(fds), err)
		}
		unix.CloseOnExec(fds[0])
		file := os.NewFile(uintptr(fds[0]), "proxy")
		listen, err := net.FileListener(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, nil, fmt.Errorf("take the proxy's port: %w", err)
		}
		if p, err = newProxy(listen, n); err != nil {
			return nil, nil, errors.Join(err, listen.Close())
		}
		if serve != nil {
			p.answer = serve
		}
		p.done.Go(p.serve)
	}
	return conn, p, nil
}
