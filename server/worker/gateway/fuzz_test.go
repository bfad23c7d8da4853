package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"triphammer/server/run/event"
)

// FuzzReadHello: no bytes of a client make the reader of names panic or lose a byte.
func FuzzReadHello(f *testing.F) {
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte{})
	var hello bytes.Buffer
	_ = tls.Client(recorder{helloConn{eof{}}, &hello}, &tls.Config{ServerName: "example.com"}).Handshake()
	f.Add(hello.Bytes())
	if name, _, err := readHello(bytes.NewReader(hello.Bytes())); name != "example.com" || err != nil {
		f.Fatalf("%q, %v", name, err)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		from := bytes.NewReader(sent)
		_, read, err := readHello(from)
		rest, _ := io.ReadAll(from)
		if err == nil && !bytes.Equal(append(read, rest...), sent) {
			t.Errorf("%q became %q", sent, append(read, rest...))
		}
	})
}

type recorder struct {
	helloConn
	to io.Writer
}

func (r recorder) Write(p []byte) (int, error) { return r.to.Write(p) }

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// FuzzRequest: whatever a client sends, the proxy connects to nothing that is not listed.
func FuzzRequest(f *testing.F) {
	for _, text := range []string{
		"CONNECT a.example:443 HTTP/1.1\r\nHost: b\r\n\r\n", "GET http://a.example/ HTTP/1.1\r\nHost: b\r\n\r\n",
		"GET http://a.example@b/ HTTP/1.1\r\n\r\n",
		"POST http://b/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := New(Config{Hosts: []string{"a.example", "a.example:80"}, Report: func(event.Egress) {}, Resolver: fixed{}})
		if err != nil {
			t.Fatal(err)
		}
		var bad string
		p.dial = func(_ context.Context, _, address string) (net.Conn, error) {
			if address != "93.184.215.14:443" && address != "93.184.215.14:80" {
				bad = address
			}
			return nil, errors.New("no network")
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code < 400 || bad != "" {
			t.Errorf("%q: %d, dialled %s", text, w.Code, bad)
		}
	})
}

type fixed struct{}

func (fixed) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host != "a.example" {
		return nil, fmt.Errorf("%q was looked up", host)
	}
	return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
}
