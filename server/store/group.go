package store

import (
	"database/sql"
	"encoding/json"
	"errors"

	"triphammer/server/store/internal/engine"
)

// group is the fields that a run shares with many others and that lists select by. The
// row of a group is written once; a run refers to it.
type group struct {
	factory, automation, source string
	creatorKind, creatorName    string
	agent, environment, model   string
	name                        string // of the posted configuration, or else of the skill that was asked for
	schedule                    ScheduleID
	scheduleName, scheduleCron  string
	priority                    int64
	workerHost                  string
}

const groupColumns = `factory, automation, source, creator_kind, creator_name, agent, environment, model, name, schedule_id, schedule_name, schedule_cron, priority, worker_host`

func (g *group) values() []any {
	return []any{
		g.factory, g.automation, g.source, g.creatorKind, g.creatorName, g.agent, g.environment, g.model, g.name,
		g.schedule, g.scheduleName, g.scheduleCron, g.priority, g.workerHost,
	}
}

// fields are where the columns of a group go.
func (g *group) fields() []any {
	return []any{
		&g.factory, &g.automation, &g.source, &g.creatorKind, &g.creatorName, &g.agent, &g.environment, &g.model, &g.name,
		&g.schedule, &g.scheduleName, &g.scheduleCron, &g.priority, &g.workerHost,
	}
}

// groupCache remembers the groups that exist. The writer goroutine owns it, and
// forgets all of it whenever it rolls something back.
type groupCache struct {
	ids   map[group]int64
	specs map[[32]byte]specFields
	// guards of the automations, which must not count a run that was rolled back.
	guards map[startsOf]*guard
	pauses pauses
	live   map[string]ApplyID // by factory
	rates  map[string][]int64 // by the webhook's UID: when deliveries came that count
}

// maxCached bounds each map of a groupCache; beyond it, it starts anew.
const maxCached = 10_000

// specFields are the fields of a spec that lists select by, and how often its runs are
// tried. A spec that has none of them, or is none, is listed all the same.
type specFields struct {
	Agent       string `json:"agent"`
	Environment struct {
		Name string `json:"name"`
	} `json:"environment"`
	Harness struct {
		Model string `json:"model"`
	} `json:"harness"`
	Config struct {
		Name string `json:"name"`
	} `json:"config"`
	Asked []struct {
		Name string `json:"name"`
	} `json:"asked_skills"`
	Outputs    map[string]json.RawMessage `json:"outputs"`
	Retry      Retry                      `json:"retry"`
	WorkerHost string                     `json:"worker_host"`
}

// groupOf finds the run's group, or makes it.
func (s *Runs) groupOf(tx *engine.Tx, r *NewRun) (int64, error) {
	fields, err := s.specFields(tx, r)
	if err != nil {
		return 0, err
	}
	g := group{
		factory: r.Factory, automation: r.Automation, source: r.Source, creatorKind: r.CreatorKind, creatorName: r.CreatorName,
		agent: fields.Agent, environment: fields.Environment.Name, model: fields.Harness.Model, name: fields.Config.Name, priority: r.Priority,
		workerHost: fields.WorkerHost,
	}
	if g.name == "" && len(fields.Asked) > 0 {
		g.name = fields.Asked[0].Name // as published
	}
	if r.Schedule != nil {
		g.schedule, g.scheduleName, g.scheduleCron = r.Schedule.ID, r.Schedule.Name, r.Schedule.Cron
	}
	return s.groupID(tx, g)
}

// groupID finds a group, or makes it.
func (s *Runs) groupID(tx *engine.Tx, g group) (int64, error) {
	if id := s.groups.ids[g]; id != 0 {
		return id, nil
	}
	var id int64
	err := tx.Row(`SELECT id FROM run_groups WHERE factory = $1 AND automation = $2 AND source = $3 AND creator_kind = $4 AND creator_name = $5
		AND agent = $6 AND environment = $7 AND model = $8 AND name = $9 AND schedule_id = $10 AND schedule_name = $11 AND schedule_cron = $12
		AND priority = $13 AND worker_host = $14`, g.values(), &id)
	if errors.Is(err, ErrNotFound) {
		id = tx.NextID()
		err = tx.Exec("INSERT INTO run_groups (id, "+groupColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)", append([]any{id}, g.values()...)...)
	}
	if err != nil {
		return 0, err
	}
	if len(s.groups.ids) >= maxCached {
		s.groups.ids = nil
	}
	if s.groups.ids == nil {
		s.groups.ids = make(map[group]int64)
	}
	s.groups.ids[g] = id
	return id, nil
}

func (s *Runs) specFields(tx *engine.Tx, r *NewRun) (specFields, error) {
	if f, ok := s.groups.specs[r.SpecHash]; ok {
		return f, nil
	}
	var f specFields
	data := r.Spec
	if data == nil {
		err := tx.Row("SELECT data FROM specs WHERE hash = $1", []any{r.SpecHash[:]}, &data)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return f, err
		}
		if err == nil && !s.soundHash(r.SpecHash[:], data) {
			data = nil
		}
	}
	if json.Unmarshal(data, &f) != nil {
		f = specFields{} // the run will say what is wrong with its spec
	}
	if len(s.groups.specs) >= maxCached {
		s.groups.specs = nil
	}
	if s.groups.specs == nil {
		s.groups.specs = make(map[[32]byte]specFields)
	}
	s.groups.specs[r.SpecHash] = f
	return f, nil
}

// groupRow is a group with its number.
type groupRow struct {
	id                int64
	automation, agent string
}

func scanGroup(rows *sql.Rows) (groupRow, error) {
	var g groupRow
	err := rows.Scan(&g.id, &g.automation, &g.agent)
	return g, err
}
