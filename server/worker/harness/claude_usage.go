package harness

import (
	"encoding/json"
	"sync"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/run/price"
	"triphammer/server/run/task"
)

// claudeAnswer is one answer of the model, as far as it is known.
type claudeAnswer struct {
	model   string
	usage   claudeUsage
	bytes   int64       // of the answer's text
	ended   bool        // usage.Output is complete
	counted event.Usage // the part that is in the total
}

// Claude tells the usage of an answer three times: while the answer streams; in lines with its
// parts, which have the usage at the answer's beginning; and in the total at the end, which lacks
// interrupted answers. Answers of subagents may not be streamed.

// streamed takes what the provider streams.
func (p *claudeParser) streamed(l claudeLine) []event.Event {
	a := p.stream[l.Parent]
	switch l.Event.Type {
	case "message_start":
		if a = p.answer(l.Event.Message, l.Parent); a != nil && len(p.stream) < maxCalls {
			p.stream[l.Parent] = a
		}
	case "content_block_delta":
		if a == nil {
			return nil
		}
		d := l.Event.Delta
		a.bytes += int64(len(d.Text) + len(d.Thinking) + len(d.JSON))
		p.count(a)
		if p.total.OutputTokens-p.spent.told.OutputTokens < claudeStep {
			return nil
		}
	case "message_delta":
		if a == nil {
			return nil
		}
		a.usage.Output = max(a.usage.Output, l.Event.Usage.Output)
		a.ended = l.Event.Usage.Output > 0
		p.count(a)
		delete(p.stream, l.Parent)
	default:
		return nil
	}
	return p.spent.upTo(p.total)
}

// claudeStep is the number of tokens of a streaming answer after which its usage is told again.
const claudeStep = 1000

// answered takes a line with a part of an answer.
func (p *claudeParser) answered(l claudeLine) []event.Event {
	a := p.answer(l.Message, l.Parent)
	if a == nil || a.ended || p.stream[l.Parent] == a {
		return nil // the answer is counted as it streams
	}
	a.bytes += saidBytes(l.Message.Content)
	p.count(a)
	return p.spent.upTo(p.total)
}

// answer is the answer that a message belongs to, or nil if there are too many.
func (p *claudeParser) answer(m claudeMessage, parent string) *claudeAnswer {
	a := p.known[m.ID]
	if a == nil && len(p.known) < maxCalls*100 {
		a = &claudeAnswer{model: m.Model, usage: m.Usage}
		p.known[m.ID] = a
		if parent == "" && m.Usage != (claudeUsage{}) { // an error of the API stands as an answer without usage
			p.total.Turns++
		}
		p.count(a)
	}
	return a
}

// count adds the known usage of an answer to the total. While the provider has not told the
// output tokens, they are estimated at four bytes a token.
func (p *claudeParser) count(a *claudeAnswer) {
	u := a.usage
	if !a.ended && u != (claudeUsage{}) {
		u.Output = max(u.Output, a.bytes/4)
	}
	now, t := u.event(), &p.total
	now.CostUSD = claudeCost(a.model, u)
	t.Model = a.model
	t.InputTokens += now.InputTokens - a.counted.InputTokens
	t.CachedTokens += now.CachedTokens - a.counted.CachedTokens
	t.OutputTokens += now.OutputTokens - a.counted.OutputTokens
	t.CostUSD += now.CostUSD - a.counted.CostUSD
	a.counted = now
}

func (u claudeUsage) event() event.Usage {
	return event.Usage{InputTokens: u.Input + u.Read + u.Written, CachedTokens: u.Read, OutputTokens: u.Output}
}

// dearModel is the model whose price an unknown model has.
const dearModel = "claude-opus-4-8"

var claudePrices = sync.OnceValue(price.Standard)

// claudeCost is what an answer of a model costs. What is written to the cache counts as kept for five minutes, as
// Claude Code does it.
func claudeCost(model string, u claudeUsage) float64 {
	p := claudePrices().Of(model)
	if p == nil {
		p = claudePrices().Of(dearModel)
	}
	return p.Cost(task.Tokens{Input: u.Input, CacheRead: u.Read, CacheWrite: u.Written, Output: u.Output}, time.Now())
}

// saidBytes is the length of the model's text in the parts of a message.
func saidBytes(content json.RawMessage) (n int64) {
	var parts []claudePart
	_ = json.Unmarshal(content, &parts)
	for _, part := range parts {
		n += int64(len(part.Text) + len(part.Thinking) + len(part.Input))
	}
	return n
}
