package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"triphammer/factory"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/store"
)

// ScheduledRequest reads the stored request with which the runs of a schedule are created;
// it is a run.SchedulerConfig.Request.
func ScheduledRequest(stored []byte) (run.Request, error) {
	var kept api.ScheduledRun
	if err := json.Unmarshal(stored, &kept); err != nil {
		return run.Request{}, fmt.Errorf("reading the schedule: %w", err)
	}
	return requestOf(ofSchedule(&kept))
}

// ofSchedule is the body of a create that makes the runs of a schedule.
func ofSchedule(r *api.ScheduledRun) *api.CreateRun {
	return &api.CreateRun{Prompt: r.Prompt, Config: r.Config, Agent: r.Agent, Metadata: r.Metadata, Mode: r.Mode}
}

// asSchedule renames the fields in the refusal of a run to those of a schedule.
func asSchedule(err error) error {
	refused, ok := refusalOf(err)
	if !ok {
		return err
	}
	names := strings.NewReplacer("config.", "agent_config.", "agent_identity_uid", "agent_uid")
	fields := slices.Clone(refused.Fields)
	for i := range fields {
		fields[i].Field = names.Replace(fields[i].Field)
	}
	return api.Refuse(refused.Code, names.Replace(refused.Detail), fields...)
}

// readSchedule reads the body that creates a schedule, or updates one of a factory.
func readSchedule(ctx context.Context, c *call, within string) (store.Schedule, *api.WriteSchedule, error) {
	req, err := body[api.WriteSchedule](c)
	if err != nil {
		return store.Schedule{}, nil, err
	}
	n, err := checkSchedule(ctx, c, &req, within)
	return n, &req, asSchedule(err)
}

func checkSchedule(ctx context.Context, c *call, req *api.WriteSchedule, within string) (store.Schedule, error) {
	req.Name = strings.TrimSpace(req.Name)
	if req.Name == "" || utf8.RuneCountInString(req.Name) > run.MaxTitle {
		return store.Schedule{}, invalid("name", "is needed, of 1 to %d characters", run.MaxTitle)
	}
	if _, err := factory.ParseCron(req.Cron); err != nil {
		return store.Schedule{}, invalid("cron_schedule", "takes five fields in UTC, or a descriptor such as @daily: %v", err)
	}
	// The cron parser would silently turn an interval below one second into one second.
	if text, ok := strings.CutPrefix(strings.TrimSpace(req.Cron), "@every "); ok {
		if every, err := time.ParseDuration(text); err == nil && every < time.Second {
			return store.Schedule{}, invalid("cron_schedule", "fires every second at most, not every %s", text)
		}
	}
	asked, err := postedRequest(ofSchedule(&req.ScheduledRun))
	if err != nil {
		return store.Schedule{}, err
	}
	asked.Factory = within
	r, err := c.NewRun(ctx, asked)
	if err != nil {
		return store.Schedule{}, err
	}
	kept, err := json.Marshal(req.ScheduledRun)
	return store.Schedule{
		Factory: r.Factory, Name: req.Name, Cron: req.Cron, Request: kept, CreatorKind: r.CreatorKind, CreatorName: r.CreatorName, KeyID: c.KeyID,
		UpdatedKind: r.CreatorKind, UpdatedBy: r.CreatorName,
	}, err
}

func (s *Server) createSchedule(ctx context.Context, c *call) (shown api.Schedule, err error) {
	n, req, err := readSchedule(ctx, c, "")
	if err != nil {
		return shown, err
	}
	n.Enabled = req.Enabled == nil || *req.Enabled
	made, err := c.CreateSchedule(ctx, n)
	if err != nil {
		return shown, err
	}
	s.scheduleChanged(c, "schedule.create", made)
	return c.showSchedule(made), nil
}

func (s *Server) scheduleChanged(c *call, action string, n *store.Schedule) {
	s.cfg.SchedulesChanged()
	c.audit(action, n.ID.String(), n.Factory, fmt.Sprintf("%s: %s, of the %s %s", n.Name, n.Cron, n.CreatorKind, n.CreatorName))
}

func aSchedule(ctx context.Context, c *call) (access.Schedule, error) {
	return c.Schedule(ctx, c.Param("id"))
}

// ownSchedule finds a schedule that the caller may change. It must not be defined by a
// file. Because its runs count as those of its creator, the caller must be the creator or
// have the scope manage.
func ownSchedule(ctx context.Context, c *call) (access.Schedule, error) {
	n, err := aSchedule(ctx, c)
	switch {
	case err != nil:
		return n, err
	case n.Automation != "":
		return n, api.Refuse(api.NotSupported, fmt.Sprintf("the automation %s defines this schedule: change its file", n.Automation))
	case !c.May(store.ScopeManage) && !c.Owns(n.Schedule):
		return n, api.Refuse(api.NotAuthorized, fmt.Sprintf("the schedule belongs to the %s %s: a key of theirs, or one with the scope manage, may change it", n.CreatorKind, n.CreatorName))
	}
	return n, nil
}

func (s *Server) listSchedules(ctx context.Context, c *call) (none api.List[api.Schedule], err error) {
	all, err := c.Schedules(ctx, c.Query("factory"))
	return listOf(all, c.showSchedule), err
}

func (s *Server) getSchedule(_ context.Context, c *call, n access.Schedule) (api.Schedule, error) {
	return c.showSchedule(n.Schedule), nil
}

func (s *Server) updateSchedule(ctx context.Context, c *call, old access.Schedule) (shown api.Schedule, err error) {
	n, req, err := readSchedule(ctx, c, old.Factory)
	if err != nil {
		return shown, err
	}
	if req.Enabled == nil {
		return shown, invalid("enabled", "is required")
	}
	if n.Factory != old.Factory {
		return shown, invalid("agent_config.environment_id", "is of another factory than the schedule")
	}
	if n.Name == old.Name && n.Cron == old.Cron && bytes.Equal(n.Request, old.Request) {
		return s.switchSchedule(ctx, c, "schedule.update", old, *req.Enabled)
	}
	// From now on, the runs belong to the person who wrote the new content.
	n.Enabled = *req.Enabled
	return s.saveSchedule(ctx, c, "schedule.update", old, n)
}

func (s *Server) saveSchedule(ctx context.Context, c *call, action string, old access.Schedule, n store.Schedule) (shown api.Schedule, err error) {
	saved, err := old.Update(ctx, n)
	if err != nil {
		return shown, err
	}
	s.scheduleChanged(c, action, saved)
	return c.showSchedule(saved), nil
}

func (s *Server) pauseSchedule(ctx context.Context, c *call, n access.Schedule) (api.Schedule, error) {
	return s.switchSchedule(ctx, c, "schedule.pause", n, false)
}

func (s *Server) resumeSchedule(ctx context.Context, c *call, n access.Schedule) (api.Schedule, error) {
	return s.switchSchedule(ctx, c, "schedule.resume", n, true)
}

// switchSchedule turns a schedule on or off without changing what it runs. If the schedule
// was paused because its key ended, the caller who turns it on becomes its creator.
// Otherwise the creator stays, whoever the caller is. The schedule depends on the key with
// which its creator last turned it on.
func (s *Server) switchSchedule(ctx context.Context, c *call, action string, old access.Schedule, enabled bool) (api.Schedule, error) {
	n := *old.Schedule
	if enabled && (c.Owns(&n) || n.Paused != "") {
		n.CreatorKind, n.CreatorName = c.Creator()
		n.KeyID = c.KeyID
	}
	n.UpdatedKind, n.UpdatedBy = c.Creator()
	n.Enabled = enabled
	return s.saveSchedule(ctx, c, action, old, n)
}

func (s *Server) deleteSchedule(ctx context.Context, c *call, n access.Schedule) (gin.H, error) {
	if err := n.Delete(ctx); err != nil {
		return nil, err
	}
	s.scheduleChanged(c, "schedule.delete", n.Schedule)
	return gin.H{"success": true}, nil
}

// nextRuns is how many times of a schedule are shown.
const nextRuns = 3

func (c *call) showSchedule(n *store.Schedule) api.Schedule {
	var kept api.ScheduledRun
	_ = json.Unmarshal(n.Request, &kept) // schedules of automations have none
	profile := func(kind, name string) api.Profile {
		return creatorOf(&store.Run{CreatorKind: kind, CreatorName: name})
	}
	shown := api.Schedule{
		ID: n.ID.String(), Name: n.Name, Cron: n.Cron, Enabled: n.Active(), PausedReason: n.Paused, Prompt: kept.Prompt, Factory: n.Factory, Automation: n.Automation,
		AgentConfig: api.Present(kept.Config), AgentUID: kept.Agent, Metadata: kept.Metadata, History: api.ScheduleHistory{LastRan: api.Time(n.FiredAt), NextRuns: []time.Time{}}, LastSpawnError: n.Error,
		Scope: teamScope(n.Factory), CreatedBy: profile(n.CreatorKind, n.CreatorName), UpdatedBy: profile(n.UpdatedKind, n.UpdatedBy),
		CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt,
	}
	if live := c.Revisions(n.Factory); len(live) > 0 && n.Automation != "" {
		if a := live[0].Definition.Automation(n.Automation); a != nil {
			shown.Prompt, shown.AgentUID = a.Prompt, a.Agent
		}
		shown.Name = cmp.Or(shown.Name, n.Automation)
	}
	if cron, err := factory.ParseCron(n.Cron); err == nil && n.Active() {
		shown.History.NextRun = api.Time(cron.Next(c.server.cfg.Now(), n.Anchor))
		for at := c.server.cfg.Now(); len(shown.History.NextRuns) < nextRuns; {
			if at = cron.Next(at, n.Anchor); at.IsZero() {
				break
			}
			shown.History.NextRuns = append(shown.History.NextRuns, at)
		}
	}
	return shown
}
