package harness

import (
	"encoding/json"
	"strings"
	"time"

	"triphammer/server/run/event"
)

// text is a string, or the texts of a list of content parts.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(s)
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(data, &parts) == nil {
		texts := make([]string, 0, len(parts))
		for _, p := range parts {
			if p.Text != "" {
				texts = append(texts, p.Text)
			}
		}
		*t = text(strings.Join(texts, "\n"))
		return nil
	}
	*t = text(data)
	return nil
}

// begun makes the event of a session, if the harness names one.
func begun(h *Harness, id string) []event.Event {
	if id == "" {
		return nil
	}
	return []event.Event{event.Session{Harness: h.Name, ID: id}}
}

// maxCalls limits how many calls in progress are remembered. An agent starts few calls at once;
// more are a harness's mistake or a stranger's text.
const maxCalls = 1000

// Now is the clock that times calls.
var Now = time.Now

// calls joins the start and the end of each call of a tool.
type calls map[string]call

type call struct {
	name    string
	command string // if it is a command
	started time.Time
}

// start remembers a call and makes its first event. command is empty if the tool runs no
// command.
func (c calls) start(id, name, command string, input json.RawMessage) event.Event {
	if id != "" && len(c) < maxCalls {
		c[id] = call{name: name, command: command, started: Now()}
	}
	if command != "" {
		return event.Command{ID: id, Phase: event.PhaseAgent, Command: command, Started: true}
	}
	return event.Tool{ID: id, Name: name, Started: true, Input: string(input)}
}

// outcome is how a call ended.
type outcome struct {
	name   string // used only if the start is not known
	exit   *int   // of a command, if it is known
	failed bool
	output string
}

func (c calls) end(id string, o outcome) event.Event {
	began, known := c[id]
	delete(c, id)
	if !known {
		began = call{name: o.name, started: Now()}
	}
	took := Now().Sub(began.started).Milliseconds()
	if began.command != "" {
		return event.Command{
			ID: id, Phase: event.PhaseAgent, Command: began.command,
			ExitCode: o.exit, Failed: o.failed, Output: o.output, DurationMS: took,
		}
	}
	return event.Tool{ID: id, Name: began.name, Output: o.output, Failed: o.failed, DurationMS: took}
}

// spent makes events only of new usage, so that no token counts twice if a harness repeats
// itself.
type spent struct{ told event.Usage }

// upTo makes the event of the usage that is in total and was not told before, if there is any.
func (s *spent) upTo(total event.Usage) []event.Event {
	more := event.Usage{
		Model:           total.Model,
		InputTokens:     max(0, total.InputTokens-s.told.InputTokens),
		CachedTokens:    max(0, total.CachedTokens-s.told.CachedTokens),
		OutputTokens:    max(0, total.OutputTokens-s.told.OutputTokens),
		ReasoningTokens: max(0, total.ReasoningTokens-s.told.ReasoningTokens),
		CostUSD:         max(0, total.CostUSD-s.told.CostUSD),
		Turns:           max(0, total.Turns-s.told.Turns),
	}
	if more.CostUSD < 1e-9 {
		more.CostUSD = 0 // a difference of binary fractions
	}
	return s.add(more)
}

func (s *spent) add(more event.Usage) []event.Event {
	if more == (event.Usage{Model: more.Model}) {
		return nil
	}
	s.told.InputTokens += more.InputTokens
	s.told.CachedTokens += more.CachedTokens
	s.told.OutputTokens += more.OutputTokens
	s.told.ReasoningTokens += more.ReasoningTokens
	s.told.CostUSD += more.CostUSD
	s.told.Turns += more.Turns
	return []event.Event{more}
}
