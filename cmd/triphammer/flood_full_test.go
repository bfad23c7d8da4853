//go:build full

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"gopkg.in/yaml.v3"

	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
)

// mostFlooded is the memory in MB that a server may take while strangers leave their answers
// unread.
const mostFlooded = 300

// TestFlood: strangers who ask every route and read no answer, over HTTP/1 and with 100 streams of
// each HTTP/2 connection, do not fill the memory of a server that serves TLS itself, and keep out
// no signed delivery.
func TestFlood(t *testing.T) {
	unwatched(t)
	for _, c := range []struct {
		name        string
		connections int
		many        bool // each from another address, else all from one
		http2       bool
	}{
		{"256 connections of one address HTTP1", 256, false, false},
		{"256 connections of one address HTTP2", 256, false, true},
		{"2000 connections of many addresses HTTP1", 2000, true, false},
		{"2000 connections of many addresses HTTP2", 2000, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, map[string]string{
				"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
				"webhooks/signed.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\n", "automations/a.md": automationFile("signed", "{n: [0]}"),
			})
			certificate, key := selfSigned(t)
			cert, keyFile := filepath.Join(w.dir, "flood.crt"), filepath.Join(w.dir, "flood.key")
			if err := errors.Join(os.WriteFile(cert, certificate, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
				t.Fatal(err)
			}
			w.start("--rate-limit", "0", "--max-runs-per-hour", "0", "--tls-cert", cert, "--tls-key", keyFile)
			signed := strings.Replace(w.url("signed"), "http://", "https://", 1)
			caller := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
			routes := openRoutes(t, caller, "https://"+w.addr)
			before := w.ofProcess("VmHWM")

			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			defer done.Wait()
			defer cancel()
			var asked atomic.Int64
			for i := range c.connections {
				done.Go(func() {
					for ctx.Err() == nil {
						if err := flood(ctx, w.addr, i, c.many, c.http2, routes, &asked); err == nil {
							return // the test is over
						}
						select { // closed by the server: come again
						case <-ctx.Done():
						case <-time.After(time.Second):
						}
					}
				})
			}
			wanted := int64(c.connections)
			if c.http2 {
				wanted += 100 * 64 // some connections get HTTP/1.1
			}
			if err := client.WaitFor(ctx, 2*time.Minute, "the flood does not come", func() (bool, error) { return asked.Load() >= wanted, nil }); err != nil {
				t.Errorf("%v: %d requests", err, asked.Load())
			}
			longest := time.Duration(0)
			for i := range 20 {
				began := time.Now()
				if status := sendTo(t, caller, signed, i); status != http.StatusAccepted {
					t.Fatalf("a signed delivery: %d", status)
				}
				longest = max(longest, time.Since(began))
			}
			most := w.ofProcess("VmHWM")
			t.Logf("%d requests at %d routes; %d MB, %d before; signed deliveries took up to %v", asked.Load(), len(routes), most>>10, before>>10, longest)
			if most > mostFlooded<<10 {
				t.Errorf("the server took %d MB", most>>10)
			}
		})
	}
}

// sendTo sends a signed delivery.
func sendTo(t *testing.T, caller *http.Client, address string, n int) int {
	t.Helper()
	body := fmt.Appendf(nil, `{"n":%d}`, n+1)
	req, err := http.NewRequest(http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign(testSecret, &signature.Request{Method: http.MethodPost, URL: address, Header: req.Header, Body: body, Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	resp, err := caller.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// openRoutes are the paths that openapi.yaml describes for GET, with values for their parameters,
// and the pages, their files among them. Those that answer much come most often.
func openRoutes(t *testing.T, caller *http.Client, server string) (all []string) {
	t.Helper()
	get := func(path string) (int, []byte) {
		resp, err := caller.Get(server + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, text
	}
	_, text := get("/openapi.yaml")
	var document struct {
		Paths map[string]map[string]any `yaml:"paths"`
	}
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for path, methods := range document.Paths {
		if methods["get"] != nil {
			path = strings.NewReplacer("{version}", "v1alpha1", "{document}", "automation").Replace(path)
			all = append(all, regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x"))
		}
	}
	_, page := get("/")
	for _, found := range regexp.MustCompile(`(?:src|href)="(/[^"]+)"`).FindAllSubmatch(page, -1) {
		all = append(all, string(found[1]))
	}
	all = append(all, "/", "/runs", "/nothing")
	slices.Sort(all)
	large := 0
	for _, path := range slices.Compact(all) {
		if status, text := get(path); status == http.StatusOK && len(text) > 20_000 {
			large++
			for range 20 {
				all = append(all, path)
			}
		}
	}
	if len(document.Paths) < 50 || large < 3 {
		t.Fatalf("%d routes, and %d answer much", len(document.Paths), large)
	}
	return all
}

// flood opens a connection, asks for routes and reads nothing. Its error is nil if ctx is done.
func flood(ctx context.Context, address string, i int, many, multiplexed bool, routes []string, asked *atomic.Int64) error {
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if many {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+i/250), byte(1+i%250))}
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	settings := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
	if !multiplexed {
		settings.NextProtos = []string{"http/1.1"}
	}
	secure := tls.Client(conn, settings)
	defer func() { _ = secure.Close() }()
	if err := secure.HandshakeContext(ctx); err != nil {
		return errors.Join(err, ctx.Err())
	}
	if multiplexed = secure.ConnectionState().NegotiatedProtocol == "h2"; !multiplexed {
		_, err = fmt.Fprintf(secure, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", routes[i%len(routes)])
		asked.Add(1)
	} else {
		err = floodStreams(secure, routes[i%len(routes):], routes, asked)
	}
	if err != nil {
		return err
	}
	// Nothing is read, so only a write tells that the server has closed the connection.
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		if multiplexed {
			err = http2.NewFramer(secure, nil).WriteWindowUpdate(0, 1)
		} else {
			_, err = secure.Write([]byte("\r\n"))
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// floodStreams asks 100 times, with a window of 0 bytes for each answer.
func floodStreams(conn net.Conn, first, routes []string, asked *atomic.Int64) error {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	if err := errors.Join(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), framer.WriteSettingsAck()); err != nil {
		return err
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	order := slices.Concat(first, routes)
	for n := range 100 {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", order[n%len(order)]}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				return err
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			return err
		}
		asked.Add(1)
	}
	return nil
}
