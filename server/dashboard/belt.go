package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
)

// belt is the drawing of how far a delivery or a run came. Every size of it draws the same
// head, kind and sentence. html/template does not escape the results of the methods, so the
// methods escape Say; everything else in them is constant.
type belt struct {
	Cells int
	Head  int    // index of the cell that the delivery or run has reached
	Kind  string // of the head: ok, fail, run, wait, skip, none, stop
	Say   string // the drawing in words, for people who do not see it
}

// The stages of the belt of a delivery, as SPEC 7.1 names them.
var stages = []string{"received", "authenticated", "parsed", "new", "matched", "run"}

// deliveryBelt is the belt of an entry in the log of deliveries. It shows the given states instead
// of the states of the delivery's runs, if there are any.
func deliveryBelt(d api.Delivery, states ...string) belt {
	if len(states) == 0 {
		for _, r := range d.StartedRuns {
			states = append(states, r.State)
		}
	}
	at := func(stage int, kind, say string) belt { return belt{len(stages), stage, kind, say} }
	switch d.Outcome {
	case string(store.RejectedTooLarge):
		return at(0, "fail", "stopped at received: too large")
	case string(store.RejectedAuth):
		return at(1, "fail", "stopped at authenticated: "+words(d.Reason))
	case string(store.RejectedInvalidJSON):
		if strings.HasPrefix(d.Reason, "body_") {
			return at(0, "fail", "stopped at received: "+words(d.Reason))
		}
		return at(2, "fail", "stopped at parsed: "+words(d.Reason))
	case string(store.Duplicate):
		return at(3, "skip", "stopped at new: a duplicate")
	case string(store.Accepted):
	default:
		return at(0, "fail", "stopped: "+words(d.Outcome))
	}
	if len(d.Runs) == 0 && len(d.Paused) > 0 {
		return at(5, "wait", "stopped at run: "+strings.Join(d.Paused, ", ")+" was paused")
	}
	if len(d.Runs) == 0 && len(d.Limited) > 0 {
		return at(5, "wait", "stopped at run: its person has started enough")
	}
	if len(d.Runs) == 0 && len(d.Skips) > 0 {
		return at(5, "skip", "stopped at run: "+d.Skips[0].Of+" was at work on the same subject")
	}
	if len(d.Runs) == 0 && (d.RunsStarted == nil || *d.RunsStarted == 0) {
		return at(4, "none", "stopped at matched: nothing wanted it")
	}
	kind, say := worst(states)
	return at(5, kind, "matched; "+say)
}

// worst is the most important of the states of several runs.
func worst(states []string) (kind, say string) {
	for _, k := range []string{"fail", "run", "wait", "stop", "ok"} {
		for _, s := range states {
			if state := runState(s); state.Kind == k {
				return k, "its run: " + strings.ToLower(state.Word)
			}
		}
	}
	return "ok", "it started runs"
}

func runBelt(r api.Run) belt {
	state := runState(r.State)
	return belt{len(stages), len(stages) - 1, state.Kind, strings.ToLower(state.Word)}
}

// state is a state: a mark, a word and a colour.
type state struct{ Kind, Word string }

var (
	outputStates = map[string]state{
		store.OutputDone: {"ok", "Done"}, store.OutputFailed: {"fail", "Needs a person"}, store.OutputWaiting: {"wait", "Waits for a person"},
		store.OutputDiscarded: {"stop", "Discarded"}, store.OutputNone: {"none", "Not done"}, store.OutputAsked: {"wait", "Waits for a reply"},
		store.OutputReplied: {"ok", "Answered"}, store.OutputPassed: {"none", "Not answered"},
	}
	answerStates = map[string]state{
		store.AnswerDelivered: {"ok", "Told"}, store.AnswerFailed: {"fail", "Needs a person"}, store.AnswerNone: {"none", "Not told"},
	}
	runStates = map[store.RunState]state{
		store.Succeeded: {"ok", "Succeeded"}, store.FailedRun: {"fail", "Failed"}, store.InProgress: {"run", "Running"},
		store.Cancelled: {"stop", "Cancelled"}, store.Blocked: {"wait", "Blocked"},
	}
)

// outputState is how something stands that an agent asked for.
func outputState(status string) state { return cmp.Or(outputStates[status], state{"wait", "Waits"}) }

// answerState is how an answer stands.
func answerState(status string) state { return cmp.Or(answerStates[status], state{"wait", "Waits"}) }

func runState(s string) state { return cmp.Or(runStates[store.RunState(s)], state{"wait", "Queued"}) }

// deliveryState is the outcome of a delivery for people.
func deliveryState(d api.Delivery) state {
	switch b := deliveryBelt(d); {
	case b.Kind == "skip":
		return state{"skip", "Duplicate"}
	case b.Kind == "none":
		return state{"none", "Nothing matched"}
	case b.Kind == "fail":
		return state{"fail", "Refused"}
	}
	return state{"ok", "Accepted"}
}

const pitch = 16.2 // between the cells of a small belt

// Small is the belt as a drawing of a line's height.
func (b belt) Small() template.HTML {
	var s strings.Builder
	width := 16.2*float64(b.Cells) + 2.8
	class := "belt-s"
	if b.Cells != len(stages) {
		class += " gauge"
	}
	fmt.Fprintf(&s, `<svg class="%s" width="%.4g" height="16" viewBox="0 0 %.4g 16" role="img" aria-label="%s">`,
		class, width, width, template.HTMLEscapeString(b.Say))
	for i := range b.Cells {
		x := pitch * float64(i)
		switch {
		case i < b.Head:
			fmt.Fprintf(&s, `<path class="past" d="M%.4g 5h13l-1.8 6h-13Z"/>`, x+3.8)
		case i > b.Head:
			fmt.Fprintf(&s, `<path class="rest" d="M%.4g 8h8"/>`, x+6)
		default:
			b.head(&s, x)
		}
	}
	s.WriteString("</svg>")
	return template.HTML(s.String()) //nolint:gosec // see belt
}

func (b belt) head(s *strings.Builder, x float64) {
	colour := b.Kind
	if colour == "stop" {
		colour = "none"
	}
	filled := func() { fmt.Fprintf(s, `<path class="f-%s" d="M%.4g 1h13.5l-4.2 14h-13.5Z"/>`, colour, x+5) }
	open := func() { fmt.Fprintf(s, `<path class="open s-%s" d="M%.4g 2h12l-3.6 12h-12Z"/>`, colour, x+4.7) }
	mark := func(class, path string) {
		fmt.Fprintf(s, `<path class="%s" transform="translate(%.4g 8)" d="%s"/>`, class, x+9.6, path)
	}
	switch b.Kind {
	case "ok":
		filled()
		mark("go", "M-2.7 .2l1.9 1.9 3.4-4")
	case "fail":
		filled()
		mark("go", "M-2 -2l4 4m0-4l-4 4")
	case "skip":
		filled()
		mark("go", "M-2.2 -1.6h5M-2.8 1.6h5")
	case "run":
		open()
		fmt.Fprintf(s, `<path class="f-run" d="M%.4g 2h6l-3.6 12h-6Z"/>`, x+4.7)
	case "wait":
		open()
		mark("mark s-wait", "M-.6 -2.2l-1.1 4.4M2 -2.2L.9 2.2")
	case "stop":
		open()
		mark("mark s-none", "M-2.6 0h5.2")
	default:
		open()
	}
}

// station is one cell of the large belt.
type station struct {
	Name, Class string // Class is past, rest, or head with its kind
	Icon        string // only of the head
	Say         string // only of the head: its state in words
	Fact        string
}

// stations are the cells of the large belt for the stages. kind is the kind of the head.
func stations(all []api.Stage, kind, say string) []station {
	head := len(all) - 1
	for i, s := range all {
		if s.Outcome != "passed" {
			head = i
			break
		}
	}
	shown := make([]station, len(all))
	for i, s := range all {
		shown[i] = station{Name: words(s.Stage), Fact: s.Detail}
		switch {
		case i < head:
			shown[i].Class = "past"
		case i > head:
			shown[i].Class, shown[i].Fact = "rest", "not reached"
		default:
			class := kind
			if kind == "stop" {
				class = "none"
			}
			shown[i].Class, shown[i].Icon, shown[i].Say = "head "+class, kind, say
		}
	}
	return shown
}

// gauge is the belt of a number of conditions, and how many of them hold.
func gauge(held, of int) belt {
	kind, head := "fail", held
	if held >= of {
		kind, head = "ok", of-1
	}
	return belt{max(of, 1), max(head, 0), kind, fmt.Sprintf("%d of %d conditions hold", held, of)}
}

// emptyBelt is the belt of something that has not begun.
func emptyBelt(say string) template.HTML { return belt{len(stages), 0, "wait", say}.Small() }

// waiting is the belt of a delivery that has not come yet.
func waiting() template.HTML { return emptyBelt("nothing has come yet") }
