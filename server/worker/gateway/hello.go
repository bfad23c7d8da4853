package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

const (
	handshakeRecord = 0x16     // first byte of a TLS connection
	maxHello        = 64 << 10 // bytes that are read to find a name
)

// accessDenied is the alert that tells a TLS client why it gets no answer.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

var (
	errHelloRead = errors.New("the name is read")
	errNoHello   = errors.New("what looks like the beginning of TLS cannot be read")
)

// readHello reads the first bytes of a client. If they begin TLS, name is the server name in
// the client's first message; else name is empty. read has all bytes that were read; the
// caller still has to send them.
func readHello(from io.Reader) (name string, read []byte, err error) {
	var kept bytes.Buffer
	first := make([]byte, 1)
	n, err := from.Read(first)
	for n == 0 && err == nil {
		n, err = from.Read(first)
	}
	kept.Write(first[:n])
	if n == 0 || first[0] != handshakeRecord {
		return "", kept.Bytes(), err
	}
	limited := io.TeeReader(io.LimitReader(from, maxHello), &kept)
	config := &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name = hello.ServerName
		return nil, errHelloRead
	}}
	err = tls.Server(helloConn{io.MultiReader(bytes.NewReader(first), limited)}, config).Handshake()
	if !errors.Is(err, errHelloRead) {
		return "", kept.Bytes(), errNoHello
	}
	return name, kept.Bytes(), nil
}

// helloConn is a connection that takes no answers.
type helloConn struct{ io.Reader }

func (helloConn) Write(p []byte) (int, error)      { return len(p), nil }
func (helloConn) Close() error                     { return nil }
func (helloConn) LocalAddr() net.Addr              { return nil }
func (helloConn) RemoteAddr() net.Addr             { return nil }
func (helloConn) SetDeadline(time.Time) error      { return nil }
func (helloConn) SetReadDeadline(time.Time) error  { return nil }
func (helloConn) SetWriteDeadline(time.Time) error { return nil }
