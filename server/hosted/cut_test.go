package hosted

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCutOff: a request whose client goes away in the middle of its body ends, and no process of
// git stays behind. git-http-backend would read the end of what it was promised for ever.
func TestCutOff(t *testing.T) {
	r := open(t)
	address := strings.TrimPrefix(begin(t, r), "http://")
	for _, service := range []string{Fetch, Push} {
		for coding, begins := range map[string]string{"identity": "00", "gzip": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"} {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_, err = fmt.Fprintf(conn, "POST /%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-%[1]s-request\r\nContent-Length: 1000\r\nContent-Encoding: %s\r\n\r\n%s", service, coding, begins)
			if err != nil {
				t.Fatal(err)
			}
			if service == Push { // git begins when all of the request is here
				await(t, service+" has begun", func() bool { return len(r.pushing) > 0 })
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			await(t, service+" has ended", func() bool { return len(processesIn(r.cfg.Dir)) == 0 && len(r.fetching)+len(r.pushing) == 0 })
		}
	}
}

// processesIn are the processes that work in a folder.
func processesIn(dir string) (all []string) {
	folders, _ := filepath.Glob("/proc/[0-9]*/cwd") // the pattern is well-formed
	for _, f := range folders {
		if at, err := os.Readlink(f); err == nil && at == dir { // else it has ended
			all = append(all, f)
		}
	}
	return all
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx := t.Context()
	for late := time.After(20 * time.Second); !is(); {
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-late:
			t.Fatal("it is not so that " + what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
