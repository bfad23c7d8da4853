package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/store"
)

// ScheduledRequest reads what a schedule's runs are created with, as it is stored;
// it is a run.SchedulerConfig.Request.
func ScheduledRequest(stored []byte) (run.Request, error) {
	var kept api.ScheduledRun
	if err := json.Unmarshal(stored, &kept); err != nil {
		return run.Request{}, fmt.Errorf("reading the schedule: %w", err)
	}
	return scheduledRequest(&kept)
}

func scheduledRequest(r *api.ScheduledRun) (run.Request, error) {
	config := r.Config
	if config == nil {
		config = json.RawMessage("null") // as the specs of earlier versions have it
	}
	return requestOf(&api.CreateRun{Prompt: r.Prompt, Config: config, Agent: r.Agent, Metadata: r.Metadata, Mode: r.Mode})
}

// asSchedule names the fields of a refused run as a schedule has them.
func asSchedule(err error) error {
	problem, ok := refusalOf(err)
	if !ok {
		return err
	}
	names := strings.NewReplacer("config.", "agent_config.", "agent_identity_uid", "agent_uid")
	renamed := refusal{problem.code, names.Replace(problem.detail), nil}
	for _, f := range problem.fields {
		renamed.fields = append(renamed.fields, api.FieldProblem{Field: names.Replace(f.Field), Message: f.Message})
	}
	return &renamed
}

// readSchedule reads a create, or an update of a schedule of a factory, or answers
// what is wrong with it.
func (s *Server) readSchedule(c *gin.Context, within string) (store.Schedule, *api.WriteSchedule, bool) {
	body, ok := readRequest(c)
	if !ok {
		return store.Schedule{}, nil, false
	}
	var req api.WriteSchedule
	if err := decode(body, &req); err != nil {
		s.failWith(c, err)
		return store.Schedule{}, nil, false
	}
	n, err := s.checkSchedule(c, &req, within)
	if err != nil {
		s.failWith(c, asSchedule(err))
		return store.Schedule{}, nil, false
	}
	return n, &req, true
}

func (s *Server) checkSchedule(c *gin.Context, req *api.WriteSchedule, within string) (store.Schedule, error) {
	req.Name = strings.TrimSpace(req.Name)
	if req.Name == "" || utf8.RuneCountInString(req.Name) > run.MaxTitle {
		return store.Schedule{}, invalid("name", "has 1 to %d characters", run.MaxTitle)
	}
	if _, err := factory.ParseCron(req.Cron); err != nil {
		return store.Schedule{}, invalid("cron_schedule", "is five fields in UTC, or a descriptor such as @daily: %v", err)
	}
	// The format's parser takes a time below a second for a second.
	if text, ok := strings.CutPrefix(strings.TrimSpace(req.Cron), "@every "); ok {
		if every, err := time.ParseDuration(text); err == nil && every < time.Second {
			return store.Schedule{}, invalid("cron_schedule", "fires every second at most, not every %s", text)
		}
	}
	p := who(c)
	asked, err := scheduledRequest(&req.ScheduledRun)
	if err != nil {
		return store.Schedule{}, err
	}
	asked.Caller, asked.Factory = p.caller(), within
	r, err := run.FromRequest(c.Request.Context(), s.cfg.Store, s.cfg.Live, asked)
	if err != nil {
		return store.Schedule{}, err
	}
	kept, err := json.Marshal(req.ScheduledRun)
	return store.Schedule{
		Factory: r.Factory, Name: req.Name, Cron: req.Cron, Request: kept, CreatorKind: r.CreatorKind, CreatorName: r.CreatorName, KeyID: p.KeyID,
		UpdatedKind: r.CreatorKind, UpdatedBy: r.CreatorName,
	}, err
}

func (s *Server) createSchedule(c *gin.Context) {
	n, req, ok := s.readSchedule(c, "")
	if !ok {
		return
	}
	n.Enabled = req.Enabled == nil || *req.Enabled
	made, err := s.cfg.Store.CreateSchedule(c.Request.Context(), n)
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.scheduleChanged(c, "schedule.create", made)
	c.JSON(http.StatusCreated, s.showSchedule(made))
}

func (s *Server) scheduleChanged(c *gin.Context, action string, n *store.Schedule) {
	s.cfg.SchedulesChanged()
	s.audit(c, action, n.ID.String(), n.Factory, fmt.Sprintf("%s: %s, of the %s %s", n.Name, n.Cron, n.CreatorKind, n.CreatorName))
}

// schedule finds the schedule of a request, or answers why not. One to be changed
// must not be a file's, and must be the caller's own unless the key may manage: its
// runs count as those of its creator.
func (s *Server) schedule(c *gin.Context, toChange bool) (*store.Schedule, bool) {
	n, err := byID(c, c.Param("id"), s.cfg.Store.Schedule)
	if err == nil && !who(c).mayTouch(n.Factory) {
		err = fmt.Errorf("schedule %s: %w", c.Param("id"), store.ErrNotFound)
	}
	if err != nil {
		s.failWith(c, err)
		return nil, false
	}
	if toChange && n.Automation != "" {
		fail(c, api.NotSupported, fmt.Sprintf("the automation %s defines this schedule: change its file", n.Automation))
		return nil, false
	}
	if p := who(c); toChange && !p.may(store.ScopeManage) && !p.owns(n) {
		fail(c, api.NotAuthorized, fmt.Sprintf("the schedule belongs to the %s %s: a key of theirs, or one with the scope manage, may change it", n.CreatorKind, n.CreatorName))
		return nil, false
	}
	return n, true
}

func (s *Server) listSchedules(c *gin.Context) {
	factory, ok := factoryOf(c)
	if !ok {
		return
	}
	all, err := s.cfg.Store.Schedules(c.Request.Context(), factory)
	if err != nil {
		s.failWith(c, err)
		return
	}
	shown := make([]api.Schedule, len(all))
	for i, n := range all {
		shown[i] = s.showSchedule(n)
	}
	c.JSON(http.StatusOK, gin.H{"schedules": shown})
}

func (s *Server) getSchedule(c *gin.Context) {
	if n, ok := s.schedule(c, false); ok {
		c.JSON(http.StatusOK, s.showSchedule(n))
	}
}

func (s *Server) updateSchedule(c *gin.Context) {
	old, ok := s.schedule(c, true)
	if !ok {
		return
	}
	n, req, ok := s.readSchedule(c, old.Factory)
	if !ok {
		return
	}
	if req.Enabled == nil {
		s.failWith(c, invalid("enabled", "is required"))
		return
	}
	if n.Factory != old.Factory {
		s.failWith(c, invalid("agent_config.environment_id", "is of another factory than the schedule"))
		return
	}
	n.ID, n.Enabled = old.ID, *req.Enabled
	if n.Name == old.Name && n.Cron == old.Cron && bytes.Equal(n.Request, old.Request) {
		n = *old
		s.switchSchedule(c, "schedule.update", &n, *req.Enabled)
		return
	}
	// Another person's runs from here on: those of whoever wrote what runs.
	s.saveSchedule(c, "schedule.update", n)
}

func (s *Server) saveSchedule(c *gin.Context, action string, n store.Schedule) {
	saved, err := s.cfg.Store.UpdateSchedule(c.Request.Context(), n)
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.scheduleChanged(c, action, saved)
	c.JSON(http.StatusOK, s.showSchedule(saved))
}

func (s *Server) pauseSchedule(c *gin.Context)  { s.enableSchedule(c, "schedule.pause", false) }
func (s *Server) resumeSchedule(c *gin.Context) { s.enableSchedule(c, "schedule.resume", true) }

func (s *Server) enableSchedule(c *gin.Context, action string, enabled bool) {
	n, ok := s.schedule(c, true)
	if !ok {
		return
	}
	s.switchSchedule(c, action, n, enabled)
}

// switchSchedule turns a schedule on or off without changing what it runs. Who
// turns on what an ended key has paused answers for it from then on; else it stays
// its creator's, whoever does it. It needs the key by which its creator last did
// so.
func (s *Server) switchSchedule(c *gin.Context, action string, n *store.Schedule, enabled bool) {
	p := who(c)
	if enabled && (p.owns(n) || n.Paused != "") {
		n.CreatorKind, n.CreatorName = p.creator()
		n.KeyID = p.KeyID
	}
	n.UpdatedKind, n.UpdatedBy = p.creator()
	n.Enabled = enabled
	s.saveSchedule(c, action, *n)
}

func (s *Server) deleteSchedule(c *gin.Context) {
	n, ok := s.schedule(c, true)
	if !ok {
		return
	}
	if err := s.cfg.Store.DeleteSchedule(c.Request.Context(), n.ID); err != nil {
		s.failWith(c, err)
		return
	}
	s.scheduleChanged(c, "schedule.delete", n)
	c.JSON(http.StatusOK, gin.H{"success": true})
}

func (s *Server) showSchedule(n *store.Schedule) api.Schedule {
	var kept api.ScheduledRun
	_ = json.Unmarshal(n.Request, &kept) // of an automation's there is nothing
	profile := func(kind, name string) api.Profile {
		return creatorOf(&store.Run{CreatorKind: kind, CreatorName: name})
	}
	shown := api.Schedule{
		ID: n.ID.String(), Name: n.Name, Cron: n.Cron, Enabled: n.Active(), PausedReason: n.Paused, Prompt: kept.Prompt, Factory: n.Factory, Automation: n.Automation,
		AgentConfig: kept.Config, AgentUID: kept.Agent, Metadata: kept.Metadata, History: api.ScheduleHistory{LastRan: api.Time(n.FiredAt)}, LastSpawnError: n.Error,
		Scope: api.Scope{Type: "Team", UID: n.Factory}, CreatedBy: profile(n.CreatorKind, n.CreatorName), UpdatedBy: profile(n.UpdatedKind, n.UpdatedBy),
		CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt,
	}
	if r, ok := s.cfg.Live.Revision(n.Factory); ok && n.Automation != "" {
		if a := r.Definition.Automation(n.Automation); a != nil {
			shown.Prompt, shown.AgentUID = a.Prompt, a.Agent
		}
		if shown.Name == "" {
			shown.Name = n.Automation
		}
	}
	if cron, err := factory.ParseCron(n.Cron); err == nil && n.Active() {
		shown.History.NextRun = api.Time(cron.Next(s.cfg.Now(), n.Anchor))
	}
	return shown
}
