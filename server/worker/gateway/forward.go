package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

// Forward accepts connections inside the walls and passes each on to the proxy, which
// listens on a unix socket. It blocks until ctx ends, closes the listener and all
// connections, and returns when its goroutines have ended.
func Forward(ctx context.Context, l net.Listener, socket string) error {
	bounded := newListener(l, maxConnections)
	defer context.AfterFunc(ctx, bounded.closeAll)()
	defer bounded.closeAll()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		client, err := bounded.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting a connection to the proxy: %w", err)
		}
		open.Go(func() {
			defer func() { _ = client.Close() }()
			proxy, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err != nil {
				return // the proxy is gone: the run ends
			}
			join(client, proxy, client)
		})
	}
}

// Connect opens a tunnel to target, a HOST:PORT, through the proxy at address, and copies
// in and out until the tunnel ends. It lets ssh pass the proxy, as its ProxyCommand.
func Connect(ctx context.Context, address, target string, in io.Reader, out io.Writer) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("the proxy of this run does not answer: %w", err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return fmt.Errorf("asking the proxy of this run: %w", err)
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fmt.Errorf("reading the answer of the proxy of this run: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return errors.New(strings.TrimSpace(string(why)))
	}
	go func() { // it ends with the input or with the program
		_, _ = io.Copy(conn, in)
		_ = closeWrite(conn)
	}()
	_, err = io.Copy(out, reader)
	return err
}
