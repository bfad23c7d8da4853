package server

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/store"
)

// forwarded are the headers with which a proxy tells that it forwards a request.
var forwarded = []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Via"}

// isLoopback tells whether a request was made on this machine: it comes from a loopback
// address, it is addressed to one, and it has no header of a proxy.
func isLoopback(c *gin.Context) bool {
	return isThisMachine(c.Request.Host) && clientOf(c).Unmap().IsLoopback() && !slices.ContainsFunc(forwarded, func(name string) bool { return c.GetHeader(name) != "" })
}

// isThisMachine tells whether a host, with or without a port, is a loopback address.
func isThisMachine(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	addr, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && addr.IsLoopback()
}

// metrics shows the metrics to callers on this machine, and to callers with the scope
// read. It is not open to others, because the labels name all factories and webhooks.
func (s *Server) metrics(c *gin.Context) {
	if !isLoopback(c) || c.GetHeader("Authorization") != "" { // what a key may not see, it does not see here either
		if s.require(store.ScopeRead)(c); c.IsAborted() {
			return
		}
		if _, err := callOf(c).Whole(); err != nil {
			s.failWith(c, err)
			return
		}
	}
	s.cfg.Metrics.Handler().ServeHTTP(c.Writer, c.Request)
}
