package relay

import (
	"context"
	"fmt"
	"net"
	"sync"
)

// Forward accepts connections inside the walls and passes each on to a unix socket, on which a
// proxy or gateway listens. When ctx ends, it closes the listener and all connections, and
// returns after its goroutines have ended.
func Forward(ctx context.Context, l net.Listener, socket string) error {
	bounded := NewListener(l, MaxConnections)
	defer context.AfterFunc(ctx, bounded.CloseAll)()
	defer bounded.CloseAll()
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
				return // the server of the socket is gone, because the run ends
			}
			Join(client, proxy, client)
		})
	}
}
