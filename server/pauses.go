package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
)

// maxPause is the longest time of a pause that has one.
const maxPause = 10 * 365 * 24 * time.Hour

// pause pauses a webhook or an automation, which the path names by its kind.
func pause(kind string) func(context.Context, *call, access.Factory) (api.Pause, error) {
	return func(ctx context.Context, c *call, f access.Factory) (shown api.Pause, err error) {
		req, err := optionalBody[api.PauseRequest](c)
		if err != nil {
			return shown, err
		}
		p := store.Pause{
			Pausable: store.Pausable{Kind: kind, Name: c.Param(kind)}, By: c.Name,
			Reason: cmp.Or(strings.TrimSpace(req.Reason), "no reason was given"),
		}
		now := c.server.cfg.Data.Health().Clock().Expected // by which its end is judged
		switch {
		case len(req.Reason) > maxReason:
			return shown, refuse("reason", "", "a reason has up to %d bytes", maxReason)
		case req.Until != nil && req.Seconds != 0:
			return shown, refuse("seconds", "", "a pause has until or seconds, not both")
		case req.Until != nil:
			p.Until = req.Until.Truncate(time.Microsecond)
		case req.Seconds < 0 || req.Seconds > int64(maxPause.Seconds()):
			return shown, refuse("seconds", fmt.Sprint(req.Seconds), "a pause lasts from 1 second to %d days", int64(maxPause.Hours()/24))
		case req.Seconds > 0:
			p.Until = now.Add(time.Duration(req.Seconds) * time.Second)
		}
		if !p.Until.IsZero() && (!p.Until.After(now) || p.Until.Sub(now) > maxPause) {
			return shown, refuse("until", p.Until.Format(time.RFC3339), "a pause ends in the future, and within %d days", int64(maxPause.Hours()/24))
		}
		if p, err = f.Pause(ctx, p); err != nil {
			return shown, err
		}
		until := ""
		if !p.Until.IsZero() {
			until = "until " + p.Until.UTC().Format(time.RFC3339) + ": "
		}
		c.audit(kind+".pause", p.Name, f.Name, until+p.Reason)
		return showPause(p), nil
	}
}

// resume ends the pause of a webhook or an automation.
func resume(kind string) func(context.Context, *call, access.Factory) (gin.H, error) {
	return func(ctx context.Context, c *call, f access.Factory) (gin.H, error) {
		if err := f.Resume(ctx, kind, c.Param(kind)); err != nil {
			return nil, err
		}
		c.audit(kind+".resume", c.Param(kind), f.Name, "")
		return gin.H{}, nil
	}
}

// pauseOf is the pause of a webhook or an automation; nil if it is not paused.
func (s *Server) pauseOf(kind, factory, name string) *api.Pause {
	p, paused := s.cfg.Data.Paused(kind, factory, name)
	if !paused {
		return nil
	}
	shown := showPause(p)
	return &shown
}

func showPause(p store.Pause) api.Pause {
	return api.Pause{Since: p.At, By: p.By, Reason: p.Reason, Until: api.Time(p.Until)}
}
