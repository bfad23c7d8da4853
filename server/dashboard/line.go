package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// phase is one phase of a run.
type phase struct {
	Name  string
	Took  time.Duration
	Class string // of the style sheet: soft, past, or the class of the head
}

// line is the timeline of the last attempt of a run.
type line struct {
	Phases []phase
	GoesOn bool
}

// pastNames are the phases in words.
var pastNames = map[string]string{
	event.PhasePull: "image", event.PhaseClone: "cloned", event.PhaseSetup: "set up", event.PhaseAgent: "agent", event.PhaseCollect: "collected",
}

// least is the shortest preparing phase that is shown.
const least = 100 * time.Millisecond

// lineOf makes the timeline from the events about states and phases.
func lineOf(r *api.Run, events []api.Event, now time.Time) (l line) {
	queued, agent := r.CreatedAt, time.Time{}
	var done []phase
	var ends []time.Time
	for _, e := range events {
		decoded, err := event.Decode(e.Kind, e.Data)
		if err != nil {
			continue // the event comes from a newer server
		}
		switch d := decoded.(type) {
		case event.Status:
			if d.State == string(store.Queued) {
				queued, agent, done, ends = e.At, time.Time{}, nil, nil
			}
		case event.Phase:
			name := pastNames[d.Name]
			name = cmp.Or(name, d.Name)
			done, ends = append(done, phase{name, time.Duration(d.DurationMS) * time.Millisecond, "past"}), append(ends, e.At)
		case event.AgentStarted:
			agent = e.At
		}
	}
	if r.State == string(store.Queued) || r.State == string(store.Blocked) || r.StartedAt == nil {
		end := now
		if r.FinishedAt != nil {
			end = *r.FinishedAt
		}
		return line{[]phase{{"queued", end.Sub(queued), headClass(r.State)}}, r.FinishedAt == nil}
	}
	l.Phases = append(l.Phases, phase{"queued", max(r.StartedAt.Sub(queued), 0), "soft"})
	at := *r.StartedAt
	for i, p := range done {
		if gap := ends[i].Add(-p.Took).Sub(at); gap >= least {
			name := "prepared"
			if i > 0 {
				name = "between"
			}
			l.Phases = append(l.Phases, phase{name, gap, "past"})
		}
		l.Phases, at = append(l.Phases, p), ends[i]
	}
	head := len(l.Phases) - 1
	if l.GoesOn = r.State == string(store.InProgress); l.GoesOn {
		name := "prepares"
		if !agent.IsZero() {
			name = "agent"
			if len(done) > 0 && done[len(done)-1].Name == "agent" {
				name = "collects"
			}
		}
		l.Phases = append(l.Phases, phase{name, max(now.Sub(at), 0), ""})
		head++
	} else {
		if rest := r.FinishedAt.Sub(at); rest >= least {
			l.Phases = append(l.Phases, phase{"ended", rest, "past"})
			if len(done) == 0 || done[len(done)-1].Name != "collected" {
				head++
			}
		}
		for i, p := range l.Phases {
			if p.Name == "agent" {
				head = i
			}
		}
	}
	l.Phases[head].Class = headClass(r.State)
	return l
}

func headClass(state string) string {
	switch kind := runState(state).Kind; kind {
	case "ok", "fail", "run", "wait":
		return "f-" + kind
	}
	return "past"
}

// Say is the timeline in words.
func (l line) Say() string {
	parts := make([]string, len(l.Phases))
	for i, p := range l.Phases {
		parts[i] = p.Name + " " + p.Long()
	}
	say := "Timeline: " + strings.Join(parts, ", ")
	if l.GoesOn {
		say += " and going on"
	}
	return say
}

// Long is how long the phase took.
func (p phase) Long() string { return event.Took(p.Took.Milliseconds()) }

// Tone is the class of the name of the phase.
func (p phase) Tone() string {
	tone, _ := strings.CutPrefix(p.Class, "f-")
	if tone == p.Class {
		return ""
	}
	return tone
}

// Draw is the drawing: a cell for each phase, as wide as the phase was long.
func (l line) Draw() template.HTML {
	const (
		left, right, lean, gap = 5.0, 995.0, 6.0, 4.0
		narrow                 = 14.0
	)
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="line" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label="%s">`, template.HTMLEscapeString(l.Say()))
	var all time.Duration
	for _, p := range l.Phases {
		all += p.Took
	}
	width := right - left - lean - gap*float64(len(l.Phases)-1)
	if l.GoesOn {
		width *= 2. / 3
	}
	share := max(width-narrow*float64(len(l.Phases)), 0)
	x := left
	for _, p := range l.Phases {
		w := narrow
		if all > 0 {
			w += share * float64(p.Took) / float64(all)
		}
		top, bottom := 4, 20
		if p.Class == "soft" {
			top, bottom = 7, 17
		}
		fmt.Fprintf(&s, `<path class="%s" d="M%.1f %dH%.1fL%.1f %dH%.1fZ"/>`, p.Class, x+lean, top, x+lean+w, x+w, bottom, x)
		x += w + gap
	}
	if l.GoesOn {
		fmt.Fprintf(&s, `<path class="rest" d="M%.1f 11H994v2H%.1fZ"/>`, x+lean, x+lean-1)
	}
	s.WriteString("</svg>")
	return template.HTML(s.String()) //nolint:gosec // numbers, constants and an escaped text
}

// meter is the drawing of how much of a budget is used.
func meter(used, of float64) template.HTML {
	share := 0.
	if of > 0 {
		share = min(max(used/of, 0), 1)
	}
	class := "past"
	if share >= 1 {
		class = "f-fail"
	}
	x := 2 + 196*share
	return template.HTML(fmt.Sprintf(`<svg class="meter" viewBox="0 0 200 6" preserveAspectRatio="none" role="img" aria-label="%.0f percent of the budget of this run">`+
		`<path class="rest" d="M2 0H200L198 6H0Z"/><path class="%s" d="M2 0H%.1fL%.1f 6H0Z"/></svg>`, 100*share, class, x+2, x)) //nolint:gosec // only numbers
}
