package factory

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"triphammer/factory/filter"
	"triphammer/factory/native"
	"triphammer/schema"
	"triphammer/schema/output"
)

// Automation is automations/<name>/automation.md.
type Automation struct {
	Name, Path string
	Enabled    bool
	Agent      string // the agent that runs it; empty in a tree without agents
	Prompt     string
	Triggers   []Trigger
	Settings   Settings // effective: the automation's own, else the agent's, else those of agentDefaults

	Retry          Retry
	Budget         Budget
	Push           Push
	Subject        *native.Template // what its events are about; nil: as the events themselves say
	StartedBy      []string         // who may start it (SPEC 24.1), as the file says; nil: whoever can
	MaxPerPerson   int64            // runs of one person in an hour (SPEC 24.1); 0: no limit
	Report         Report           // in place of the webhook's, as far as it says something
	MaxRunsPerHour int64            // the server pauses the automation if it starts more; 0: the server's own limit
	Overflow       bool             // what is more than MaxRunsPerHour waits, and does not pause the automation
	PerSubject     string           // what an event does while a run for the same subject is queued or at work; empty: it starts another
	Outputs        output.Allowed   // what its agent may ask the server for (SPEC 23.1)
	Approval       Approval         // what waits for a person (SPEC 26.1)
	Settle         time.Duration    // how long no further event of a subject may come before its run starts; 0: it starts at once
}

// Retry says how often a run that fails is tried.
type Retry struct {
	Attempts int           `json:"attempts,omitempty"` // total number; 0 and 1 mean no second attempt
	Delay    time.Duration `json:"delay_ns,omitempty"` // before the second attempt; it doubles from then on
}

// DefaultRetryDelay is the delay before the second attempt of a run.
const DefaultRetryDelay = 10 * time.Second

// Trigger is what starts an automation.
type Trigger struct {
	schema.At
	Provider, Event string
	WebhookIDs      []string        // filter.webhook_ids
	Webhooks        []string        // filter.webhooks: file names
	Headers         *filter.Headers // nil without a header filter
	Payload         *filter.Filter  // nil without a payload filter
	Cron            string          // expression of an inline schedule
	ScheduleName    string          // name of the inline schedule; may be empty
	ScheduleIDs     []string        // filter.schedule_ids
	Native          *native.Trigger // nil unless the trigger names a sender's event
}

// Fires tells whether a server acts on the trigger. A server only checks and shows the
// other triggers (SPEC 2.1).
func (t *Trigger) Fires() bool {
	if t.webhook() || t.Scheduled() {
		return true
	}
	e := native.Find(t.Provider, t.Event)
	return e != nil && len(e.In) > 0
}

func (t *Trigger) webhook() bool { return t.Provider == "webhook" && t.Event == "received" }

// Scheduled tells whether a schedule fires the trigger.
func (t *Trigger) Scheduled() bool { return t.Provider == "schedule" && t.Event == "cron_fired" }

// Selects tells whether deliveries of the webhook can fire the trigger. They can if the
// trigger names the webhook, by UID or file name, or an event of the webhook's sender.
func (t *Trigger) Selects(w *Webhook, uid string) bool {
	if t.Native != nil {
		return w.Sender() == t.Native.Event.Sender
	}
	return t.webhook() && (slices.Contains(t.Webhooks, w.Name) || uid != "" && slices.Contains(t.WebhookIDs, uid))
}

func (l *loader) automation(d *document) *Automation {
	a := &Automation{
		Name: d.name, Path: d.Path, Prompt: d.Body,
		Enabled: boolOf(d.Root.Get("enabled"), true),
	}
	inherited := l.factory.Defaults
	agent := l.foreman
	if n := d.Root.Get("agent"); textOf(n) != "" {
		agent = l.agentNamed(d, n)
	}
	if agent != nil {
		a.Agent = agent.Name
		inherited = agent.Settings
	}
	a.Settings = l.settings(d, d.Root, inherited, "")
	if !l.opt.Strict {
		l.bounds(d, a)
		a.Report = report(d)
		a.Outputs = outputs(d)
		l.approval(d, a)
	}
	unnamed, named := 0, make(map[string]bool)
	for i, n := range itemsOf(d.Root.Get("triggers")) {
		if n.Kind != schema.Mapping {
			continue
		}
		t := l.trigger(d, n, fmt.Sprintf("triggers[%d]", i))
		a.Triggers = append(a.Triggers, t)
		s := n.Get("schedule")
		if t.Provider != "schedule" || s == nil || s.Kind != schema.Mapping {
			continue
		}
		name := strings.TrimSpace(textOf(s.Get("name")))
		if name == "" {
			unnamed++
		}
		if named[name] || unnamed > 1 {
			d.Error(s.At, schema.DuplicateKey, "give each schedule a name of its own", "two schedules of one automation have the same name or none")
		}
		named[name] = name != ""
	}
	l.warnOfRef(d, a)
	if !l.opt.Strict {
		l.starters(d, a)
		l.subjectless(d, a)
		l.pushes(d, a)
		l.unperformed(d, a)
	}
	l.reported(d, a)
	return a
}

// warnOfRef warns of an automation whose environment asks for what the event is about, if it has no event
// that is about code.
func (l *loader) warnOfRef(d *document, a *Automation) {
	e := l.environments[a.Settings.EnvironmentID]
	if l.opt.Strict || e == nil || !slices.ContainsFunc(e.Repositories, func(r Repository) bool { return r.Ref == RefEvent }) ||
		slices.ContainsFunc(a.Triggers, func(t Trigger) bool { return t.Native != nil && t.Native.Event.Sender.HasHeads() }) {
		return
	}
	d.Warn(d.Root.KeyAt("triggers"), schema.NoEffect, "add a trigger with an event of github, gitlab or azure_devops, or name a branch as the ref",
		fmt.Sprintf("%s says ref: event, and no trigger here has an event that is about code: the default branch is checked out", e.Path))
}

// bounds reads the keys that bound the runs of an automation. They are our extension.
func (l *loader) bounds(d *document, a *Automation) {
	a.Budget = budget(d)
	if n := d.Root.Get("subject"); textOf(n) != "" {
		var err error
		if a.Subject, err = native.ParseTemplate(textOf(n)); err != nil {
			d.Error(n.At, schema.InvalidValue, `subject: "{service.name}/{alert.id}" is an example`, err.Error())
		}
	}
	a.MaxPerPerson = int64(amount(d, "maxRunsPerPersonPerHour", maxPerHour))
	a.Push = pushOf(d)
	a.MaxRunsPerHour = int64(amount(d, "maxRunsPerHour", maxPerHour))
	l.lines(d, a)
	if a.Retry.Attempts = int(amount(d, "retry.attempts", maxAttempts)); a.Retry.Attempts > 1 {
		a.Retry.Delay = cmp.Or(time.Duration(amount(d, "retry.delaySeconds", maxSeconds)*float64(time.Second)), DefaultRetryDelay)
	}
}

// MaxSettle is how many times Automation.Settle an event waits at most.
const MaxSettle = 10

// settles are the durations from 1s to 1h that the key settle takes, in one unit.
var settles = regexp.MustCompile(`^(?:(?:[1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s|(?:[1-9]|[1-5][0-9]|60)m|1h)$`)

// lines reads the keys that say what several events of one subject do (SPEC 21.3, 21.4).
func (l *loader) lines(d *document, a *Automation) {
	a.Overflow = textOf(d.Root.Get("overflow")) == "queue"
	if a.PerSubject = textOf(d.Root.Get("perSubject")); a.PerSubject == "parallel" {
		a.PerSubject = ""
	}
	if n := d.Root.Get("settle"); textOf(n) != "" {
		if !settles.MatchString(textOf(n)) {
			d.Error(n.At, schema.InvalidValue, "settle: 30s is an example", fmt.Sprintf("settle is %q where seconds, minutes or 1h is expected, from 1s to 1h", textOf(n)))
		}
		a.Settle, _ = time.ParseDuration(textOf(n))
	}
	if e := l.environments[a.Settings.EnvironmentID]; a.PerSubject == "continue" && e != nil && len(e.Command) > 0 {
		d.Error(d.Root.Get("perSubject").At, schema.InvalidValue, "write queue, or leave out the command of "+e.Path,
			fmt.Sprintf("perSubject cannot be continue: the command of %s keeps no session that a run could go on with", e.Path))
	}
}

// subjectless warns of what is said about subjects in an automation whose events have none.
func (l *loader) subjectless(d *document, a *Automation) {
	if slices.ContainsFunc(a.Triggers, func(t Trigger) bool { return t.Native != nil || a.Subject != nil && t.webhook() }) {
		return
	}
	hint, why := `add subject: "{service.name}/{alert.id}", with the paths of your payload`, "nothing says what the events of these triggers are about"
	if a.Subject != nil {
		hint, why = "add a trigger whose events have a payload, or take it out", "the events of these triggers have no payload"
	}
	for _, key := range []string{"subject", "perSubject", "settle"} {
		if n := d.Root.Get(key); n != nil && (key != "perSubject" || a.PerSubject != "") && (key != "subject" || a.Subject != nil) {
			d.Warn(d.Root.KeyAt(key), schema.NoEffect, hint, key+" has no effect: "+why)
		}
	}
}

// agentNamed finds the agent that a node names. If there is no such agent, it reports a
// finding and returns nil.
func (l *loader) agentNamed(d *document, n *schema.Node) *Agent {
	name := strings.TrimSpace(textOf(n))
	if name == "" || l.agents[name] != nil || l.unread["agent "+name] {
		return l.agents[name]
	}
	known := names(l.factory.Agents, func(a *Agent) string { return a.Name })
	d.Error(n.At, schema.InvalidReference, cmp.Or(d.OneOf(name, known), "add agents/NAME/agent.md, or take the name out"), fmt.Sprintf("no agent is named %q", name))
	return nil
}

func (l *loader) trigger(d *document, n *schema.Node, where string) Trigger {
	t := Trigger{At: n.At, Provider: textOf(n.Get("provider")), Event: textOf(n.Get("event"))}
	events, known := catalogue()[t.Provider]
	add := func(key, hint string) {
		if n.Get(key) == nil {
			d.Error(n.At, schema.MissingRequired, "add "+key+": "+hint, fmt.Sprintf("key %q is missing", where+"."+key))
		}
	}
	add("event", cmp.Or(strings.Join(eventsOf(t.Provider), "|"), "received"))
	add("provider", "webhook")
	switch {
	case t.Provider == "" || t.Event == "":
		return t
	case !known, l.opt.Strict && guessed(t.Provider):
		d.Error(n.Get("provider").At, schema.InvalidEvent, schema.Newer(d.OneOf(t.Provider, providers(l.opt.Strict))), fmt.Sprintf("%s: unknown provider %q", where, t.Provider))
		return t
	}
	keys, known := events[t.Event]
	if !known {
		d.Error(n.Get("event").At, schema.InvalidEvent, schema.Newer(d.OneOf(t.Event, eventsOf(t.Provider))), fmt.Sprintf("%s: %s has no event %q", where, t.Provider, t.Event))
		return t
	}
	filterNode := n.Get("filter")
	for _, key := range []string{"filter", "schedule"} {
		if value := n.Get(key); l.opt.Strict && value != nil && value.Kind == schema.Null {
			d.Error(value.At, schema.MissingRequired, "give it a value, or take it out", where+"."+key+" has no value")
		}
	}
	if !l.opt.Strict && !t.Fires() {
		d.Warn(n.Get("provider").At, schema.NoEffect, noEffectHint, fmt.Sprintf("%s: this server does not fire %s %s", where, t.Provider, t.Event))
	}
	l.schedule(d, n, &t, where)
	if t.webhook() {
		l.webhookTrigger(d, n, &t, where)
		return t
	}
	if e := native.Find(t.Provider, t.Event); e != nil {
		l.senderTrigger(d, filterNode, &t, e, where)
		l.raised(d, n, &t, where)
		return t
	}
	if filterNode != nil && filterNode.Kind == schema.Mapping {
		l.checkFilter(d, filterNode, &t, keys, where)
	}
	return t
}

// webhookTrigger reads the filter of a webhook trigger (SPEC C2.4, SPEC
// 2.2c).
func (l *loader) webhookTrigger(d *document, n *schema.Node, t *Trigger, where string) {
	f := n.Get("filter")
	keys := []string{"webhook_ids", "payload"}
	if !l.opt.Strict {
		keys = append(keys, "webhooks", "headers")
	}
	if f != nil {
		for _, field := range f.Fields {
			if !slices.Contains(keys, field.Key) {
				hint := d.OneOf(field.Key, keys)
				switch field.Key {
				case "webhooks":
					hint = "--strict takes webhook_ids alone; without it webhooks names files"
				case "headers":
					hint = "--strict takes webhook_ids and payload alone; without it headers filters on headers"
				}
				d.Error(field.At, schema.InvalidFilter, hint, fmt.Sprintf("%s: webhook received cannot be filtered on %q", where, field.Key))
			}
		}
	}
	t.WebhookIDs = l.selection(d, f.Get("webhook_ids"), where+".filter.webhook_ids")
	if !l.opt.Strict {
		t.Webhooks = l.selection(d, f.Get("webhooks"), where+".filter.webhooks")
	}
	for _, item := range listOrIn(f.Get("webhook_ids")) {
		switch uid := strings.TrimSpace(textOf(item)); {
		case uid == "":
		case !l.opt.Strict && l.places["webhook "+uid] != "":
			d.Warn(item.At, schema.UnknownTarget, fmt.Sprintf("write filter: {webhooks: [%s]}", uid), fmt.Sprintf("webhook_ids takes UIDs, and %q is the name of a file: this selection fires nothing", uid))
		default:
			l.later(d, item.At, where+".filter.webhook_ids", kindUID, uid)
		}
	}
	if f.Get("webhook_ids") == nil && (l.opt.Strict || f.Get("webhooks") == nil) {
		hint := "add filter: {webhooks: [name of a file in webhooks/]}"
		at := n.At
		if f != nil {
			at = n.KeyAt("filter")
		}
		if l.opt.Strict {
			hint = "add filter: {webhook_ids: [UID]}"
		}
		d.Error(at, schema.MissingRequired, hint, where+" selects no webhook")
	}
	for _, item := range listOrIn(f.Get("webhooks")) {
		if name := strings.TrimSpace(textOf(item)); !l.opt.Strict && name != "" && l.places["webhook "+name] == "" {
			known := names(l.factory.Webhooks, func(w *Webhook) string { return w.Name })
			d.Warn(item.At, schema.UnknownTarget, cmp.Or(d.OneOf(name, known), "add the file, or take the name out"), fmt.Sprintf("there is no webhooks/%s.yaml: this selection fires nothing", name))
		}
	}
	if payload := f.Get("payload"); payload != nil && payload.Kind != schema.Null {
		t.Payload = compile(d, payload, where+".filter.")
	}
	if headers := f.Get("headers"); headers != nil && headers.Kind != schema.Null && !l.opt.Strict {
		l.headers(d, headers, t, where)
	}
}

// listOrIn are the items of a bare list or of {in: […]}.
func listOrIn(n *schema.Node) []*schema.Node {
	if in := n.Get("in"); in != nil {
		return itemsOf(in)
	}
	return itemsOf(n)
}

// selection reads a non-empty list of names, the only thing that selects
// webhooks.
func (l *loader) selection(d *document, n *schema.Node, where string) []string {
	if n == nil {
		return nil
	}
	for _, f := range n.Fields {
		if f.Key != "in" {
			d.Error(f.At, schema.InvalidFilter, "list the ones that are meant", where+" takes a list or in, nothing else")
			return nil
		}
	}
	if text := textOf(n); text != "" {
		d.Error(n.At, schema.InvalidFilter, fmt.Sprintf("write [%q]", text), where+" is a string where a list is expected")
		return nil
	}
	items := listOrIn(n)
	if len(items) == 0 {
		d.Error(n.At, schema.InvalidFilter, "write [NAME]", where+" is empty")
		return nil
	}
	var all []string
	for _, item := range items {
		text := strings.TrimSpace(textOf(item))
		if text == "" {
			d.Error(item.At, schema.InvalidFilter, "write a name in quotes, or take it out", where+" holds something that is not a name")
			continue
		}
		all = append(all, text)
	}
	return all
}

// compile compiles a payload filter, so that validation and not a delivery finds a bad
// filter (SPEC 3.5).
func compile(d *document, n *schema.Node, prefix string) *filter.Filter {
	f, problems := filter.Compile(valueOf(n))
	d.problems(problems, prefix)
	return f
}

func (d *document) problems(all []filter.Problem, prefix string) {
	for _, p := range all {
		d.Error(schema.At{Line: p.Line, Column: p.Column}, schema.InvalidFilter, p.Hint, prefix+p.Path+": "+p.Message)
	}
}

func valueOf(n *schema.Node) filter.Value {
	v := filter.Value{Line: n.Line, Column: n.Column, Text: n.Text}
	switch n.Kind {
	case schema.Null:
		v.Kind = filter.Null
	case schema.Bool:
		v.Kind, v.Bool = filter.Bool, n.Text == "true"
	case schema.Int, schema.Float:
		v.Kind = filter.Number
	case schema.List:
		v.Kind = filter.Array
		for _, item := range n.Items {
			v.Items = append(v.Items, valueOf(item))
		}
	case schema.Mapping:
		v.Kind = filter.Object
		for _, f := range n.Fields {
			v.Fields = append(v.Fields, filter.Field{Key: f.Key, Value: valueOf(f.Value), Line: f.Line, Column: f.Column})
		}
	default:
		v.Kind = filter.String
	}
	return v
}

func (l *loader) schedule(d *document, n *schema.Node, t *Trigger, where string) {
	s := n.Get("schedule")
	inline := s != nil && s.Kind != schema.Null
	if t.Provider != "schedule" {
		if inline {
			d.Error(n.KeyAt("schedule"), schema.InvalidTrigger, "take it out, or write provider: schedule, event: cron_fired", fmt.Sprintf("%s: a schedule on a trigger of %s", where, t.Provider))
		}
		return
	}
	ids := n.Get("filter").Get("schedule_ids")
	if !isNull(ids) {
		t.ScheduleIDs = l.selection(d, ids, where+".filter.schedule_ids")
	}
	switch {
	case !isNull(ids) && inline:
		d.Error(n.At, schema.InvalidTrigger, "keep one of them", where+" has both schedule and filter.schedule_ids")
	case isNull(ids) && !inline:
		d.Error(n.At, schema.InvalidTrigger, "add schedule: {cron: '0 6 * * *'}", where+" has neither schedule nor filter.schedule_ids")
	}
	cronNode := s.Get("cron")
	if t.Cron = textOf(cronNode); t.Cron == "" {
		return
	}
	t.ScheduleName = strings.TrimSpace(textOf(s.Get("name")))
	if strings.Contains(t.Cron, "TZ=") {
		d.Error(cronNode.At, schema.InvalidValue, "schedules are in UTC: take it out", where+".schedule.cron has a time zone")
	} else if schedule, err := ParseCron(t.Cron); err == nil && !l.opt.Strict {
		if odd := schedule.odd(t.Cron); odd != "" {
			d.Warn(cronNode.At, schema.OddSchedule, "", fmt.Sprintf("%s.schedule.cron %s", where, odd))
		}
	} else if err != nil {
		d.Error(cronNode.At, schema.InvalidValue, "write five fields (minute hour day month weekday, 0 to 6 from Sunday) or a descriptor such as @daily or @every 2h", fmt.Sprintf("%s.schedule.cron: %v", where, err))
	}
}
