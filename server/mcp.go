package server

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/mcp"
	"triphammer/server/terms"
)

// showCaller is the answer about a caller.
func showCaller(c *access.Caller) api.Caller {
	may := slices.DeleteFunc(slices.Clone(terms.Scopes), func(scope string) bool { return !c.May(scope) })
	return api.Caller{Name: c.Name, Kind: c.Kind, Scopes: may, Factory: c.Factory, ExpiresAt: api.Time(c.Expires)}
}

func (s *Server) getCaller(_ context.Context, c *call) (api.Caller, error) {
	return showCaller(c.Caller), nil
}

// tools answers a message of the Model Context Protocol. Its tools call the API in this
// process, as the caller.
func (s *Server) tools(c *gin.Context) {
	if origin := c.GetHeader("Origin"); origin != "" && !s.trustsOrigin(c, origin) {
		fail(c, api.NotAuthorized, "the page "+origin+" may not use this server: programs call it, or pages of its --base-url")
		return
	}
	by, err := s.caller(c)
	if err != nil {
		s.failWith(c, err)
		return
	}
	body, err := readBody(c, mcp.MaxRequest)
	if err != nil {
		s.failWith(c, err)
		return
	}
	peer := mcp.Peer{API: inside{s, by, c.Request}.ask, Caller: showCaller(by), Version: s.cfg.Version, Logger: s.cfg.Logger}
	peer.ServeHTTP(c.Writer, c.Request, body)
}

// trustsOrigin tells whether a page of an origin may send messages of the Model Context
// Protocol, which demands this check: a name that a stranger owns may lead to this server, so
// that pages of that name reach it (DNS rebinding). The host of the request proves nothing,
// because it is that name too. So the origin is that of the base URL, or a page of this
// machine reaches the server by an address of this machine.
func (s *Server) trustsOrigin(c *gin.Context, origin string) bool {
	from, err := url.Parse(origin)
	if err != nil || from.Host == "" {
		return false
	}
	if base, err := url.Parse(s.cfg.BaseURL); err == nil && strings.EqualFold(base.Host, from.Host) && base.Scheme == from.Scheme {
		return true
	}
	return isThisMachine(from.Host) && isLoopback(c)
}
