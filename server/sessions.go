package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
)

// createLoginLink makes a link that signs the caller in once.
func (s *Server) createLoginLink(ctx context.Context, c *call, all access.Whole) (link api.LoginLink, err error) {
	token, err := all.CreateLoginLink(ctx, c.Owner, c.KeyID, linkLife)
	if err != nil {
		return link, err
	}
	c.audit("auth.link", c.Owner, "", "")
	return api.LoginLink{URL: s.cfg.BaseURL + "/auth/login?token=" + token, ExpiresAt: s.cfg.Now().Add(linkLife)}, nil
}

// endSessions signs everybody out of the pages.
func (s *Server) endSessions(ctx context.Context, c *call, all access.Whole) (api.Ended, error) {
	ended, err := all.EndSessions(ctx)
	if err != nil {
		return api.Ended{}, err
	}
	c.audit("auth.logout_all", "", "", fmt.Sprintf("ended %d sessions and %d links", ended.Sessions, ended.LoginLinks))
	return api.Ended(ended), nil
}

func (s *Server) login(c *gin.Context) {
	session, by, err := s.cfg.Data.SignIn(c.Request.Context(), c.Query("token"), sessionLife)
	if errors.Is(err, store.ErrNotFound) {
		s.message(c, http.StatusUnauthorized, "This link does not work",
			"It was used, it is too old, or the key that made it was revoked. Run `triphammer auth login` for another.")
		return
	}
	if err != nil {
		s.failPage(c, err)
		return
	}
	http.SetCookie(c.Writer, &http.Cookie{
		Name: sessionCookie, Value: session, Path: cmp.Or(s.base, "/"), MaxAge: int(sessionLife.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: s.secure(),
	})
	s.admit(c, by).audit("auth.login", by.Owner, "", "")
	c.Redirect(http.StatusSeeOther, s.base+"/")
}

func (s *Server) logout(c *gin.Context) {
	if token, err := c.Cookie(sessionCookie); err == nil {
		by, err := s.cfg.Data.SignOut(c.Request.Context(), token)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			s.failPage(c, err)
			return
		}
		if err == nil {
			s.admit(c, by).audit("auth.logout", by.Owner, "", "")
		}
	}
	http.SetCookie(c.Writer, &http.Cookie{Name: sessionCookie, Path: cmp.Or(s.base, "/"), MaxAge: -1, HttpOnly: true})
	s.message(c, http.StatusOK, "Signed out", "The session has ended.")
}
