package tracing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
)

// Header is the header in which a sender says to which trace a delivery belongs
// (https://www.w3.org/TR/trace-context/#traceparent-header). An agent finds the same in its environment,
// as TRACEPARENT.
const Header = "Traceparent"

// maxName is the longest name of a tool in a trace, in bytes: an agent says it.
const maxName = 100

// Parent is the value of TRACEPARENT for the agent of a run, so that what it calls can add to the
// trace. Sent are the headers of the delivery that started the run; nil if none did.
func Parent(r *store.Run, sent map[string]string) string {
	return fmt.Sprintf("00-%s-%s-01", traceOf(r, sent), spanOf("run", r.ID.String()))
}

// traceOf is the trace of a run: that which the sender of its delivery names, or one that follows from
// the delivery, or from the first run of its conversation.
func traceOf(r *store.Run, sent map[string]string) traceID {
	if id, _, ok := parse(sent[Header]); ok {
		return id
	}
	of := r.DeliveryID.String()
	if r.DeliveryID == 0 {
		of = r.ConversationID.String()
	}
	sum := sha256.Sum256([]byte("trace of " + of))
	return traceID(sum[:16])
}

func spanOf(what string, of ...string) spanID {
	sum := sha256.Sum256([]byte("span " + what + " " + strings.Join(of, " ")))
	return spanID(sum[:8])
}

// parse reads the value of a Header.
func parse(value string) (id traceID, parent spanID, ok bool) {
	parts := strings.Split(value, "-")
	if len(parts) < 4 || len(parts[0]) != 2 || parts[0] == "ff" || parts[0] == "00" && len(parts) != 4 || len(parts[1]) != 32 || len(parts[2]) != 16 || value != strings.ToLower(value) {
		return id, parent, false
	}
	_, err := hex.Decode(id[:], []byte(parts[1]))
	_, failed := hex.Decode(parent[:], []byte(parts[2]))
	flags, odd := hex.DecodeString(parts[0] + parts[3])
	if err != nil || failed != nil || odd != nil || len(flags) != 2 || id == (traceID{}) || parent == (spanID{}) {
		return traceID{}, spanID{}, false
	}
	return id, parent, true
}

// traced are the spans of one run.
type traced struct {
	id    traceID
	spans []span
}

// add adds a span below another one; a zero parent: it is the first.
func (t *traced) add(parent, id spanID, name string, kind int, from, to time.Time, failed string, attributes ...attribute) {
	if to.Before(from) {
		to = from // two machines have two clocks
	}
	s := span{TraceID: t.id, SpanID: id, Name: name, Kind: kind, Start: nanos(from), End: nanos(to)}
	if parent != (spanID{}) {
		s.Parent = &parent
	}
	if failed != "" {
		s.Status = &status{Code: codeError, Message: failed}
	}
	s.Attributes = slices.DeleteFunc(attributes, func(a attribute) bool { return a.Key == "" })
	t.spans = append(t.spans, s)
}

// trace makes the spans of a run, and with the first run of a delivery also that of the delivery.
func (t *Teller) trace(ctx context.Context, r *store.Run) ([]span, error) {
	to, parent := &traced{id: traceOf(r, nil)}, spanID{}
	if r.DeliveryID != 0 {
		d, err := t.Store.Deliveries.Get(ctx, r.DeliveryID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			to.id, parent = traceOf(r, d.Headers), spanOf("delivery", d.ID.String())
			if len(d.Runs) > 0 && d.Runs[0].ID == r.ID {
				t.delivery(to, parent, d, r)
			}
		}
	} else if r.ConversationID != r.ID {
		parent = spanOf("run", r.ConversationID.String())
	}
	own := spanOf("run", r.ID.String())
	failed := ""
	if r.State == store.FailedRun {
		failed = "FAILED"
	}
	name := r.Automation
	name = cmp.Or(name, r.CreatorName)
	to.add(parent, own, "run "+name, kindInternal, r.CreatedAt, r.FinishedAt, failed,
		text("triphammer.factory", r.Factory), text("triphammer.automation", r.Automation), text("triphammer.run", r.ID.String()),
		text("triphammer.state", string(r.State)), text("triphammer.subject", r.Subject), number("triphammer.attempts", r.Attempt),
		amount("triphammer.cost_usd", r.CostUSD), number("triphammer.tokens", r.Tokens))
	started := r.StartedAt
	if started.IsZero() {
		started = r.FinishedAt
	}
	to.add(own, spanOf("queue", r.ID.String()), "queue", kindInternal, r.CreatedAt, started, "")
	err := errors.Join(t.inside(ctx, to, own, r), t.outside(ctx, to, own, r))
	return to.spans, err
}

// delivery makes the span of a delivery: from its first byte to the transaction that recorded it and its runs.
func (t *Teller) delivery(to *traced, own spanID, d *store.Delivery, first *store.Run) {
	_, parent, _ := parse(d.Headers[Header])
	to.add(parent, own, "delivery "+d.Webhook, kindConsumer, d.ReceivedAt, first.CreatedAt, "",
		text("triphammer.factory", d.Factory), text("triphammer.webhook", d.Webhook), text("triphammer.delivery", d.ID.String()),
		number("messaging.message.body.size", d.Size), number("triphammer.runs", int64(d.Started)))
}

// inside makes the spans of what happened in a run, by its transcript.
func (t *Teller) inside(ctx context.Context, to *traced, parent spanID, r *store.Run) error {
	events, err := t.Store.Transcripts.OfKinds(ctx, r.ID, event.KindPhase, event.KindTool, event.KindCommand, event.KindUsage, event.KindStarted)
	if err != nil {
		return err
	}
	began := make(map[string]time.Time) // tools at work, by their ids
	agent, attempts := spanOf("agent", r.ID.String(), "0"), 0
	last := r.StartedAt // the end of what came before
	for _, stored := range events {
		e, err := event.Decode(stored.Kind, stored.Data)
		if err != nil {
			continue // a newer server wrote it
		}
		of := spanOf(stored.Kind, r.ID.String(), fmt.Sprint(stored.Seq))
		switch e := e.(type) {
		case event.Phase:
			from := stored.At.Add(-time.Duration(e.DurationMS) * time.Millisecond)
			if e.Name != event.PhaseAgent {
				to.add(parent, of, e.Name, kindInternal, from, stored.At, "")
				break
			}
			to.add(parent, agent, "invoke_agent", kindInternal, from, stored.At, "",
				text("gen_ai.operation.name", "invoke_agent"), text("gen_ai.agent.name", r.Agent))
			attempts++
			agent = spanOf("agent", r.ID.String(), fmt.Sprint(attempts))
		case event.Usage:
			if e.Model == "" && e.InputTokens+e.OutputTokens == 0 {
				break
			}
			to.add(agent, of, strings.TrimSpace("chat "+clip(e.Model)), kindClient, last, stored.At, "",
				text("gen_ai.operation.name", "chat"), text("gen_ai.request.model", clip(e.Model)),
				number("gen_ai.usage.input_tokens", e.InputTokens), number("gen_ai.usage.output_tokens", e.OutputTokens), amount("triphammer.cost_usd", e.CostUSD))
		case event.Tool:
			to.tool(agent, of, began, tool{e.ID, e.Name, e.Started, e.Failed, e.DurationMS}, stored.At)
		case event.Command:
			above := agent
			if e.Phase != event.PhaseAgent {
				above = parent
			}
			to.tool(above, of, began, tool{e.ID, "command", e.Started, e.Failed, e.DurationMS}, stored.At)
		}
		last = stored.At
	}
	return nil
}

// tool is a Tool or a Command of a transcript.
type tool struct {
	id, name        string
	started, failed bool
	took            int64 // ms; 0: the harness does not say
}

func (t *traced) tool(parent, span spanID, began map[string]time.Time, e tool, at time.Time) {
	if e.started {
		began[e.id] = at
		return
	}
	from, known := began[e.id]
	if delete(began, e.id); !known || e.id == "" {
		from = at.Add(-time.Duration(e.took) * time.Millisecond)
	}
	failed := ""
	if e.failed {
		failed = "failed"
	}
	t.add(parent, span, "execute_tool "+clip(e.name), kindInternal, from, at, failed,
		text("gen_ai.operation.name", "execute_tool"), text("gen_ai.tool.name", clip(e.name)))
}

// outside makes the spans of what senders were told of a run, and of what was done for its agent.
func (t *Teller) outside(ctx context.Context, to *traced, parent spanID, r *store.Run) error {
	answers, err := t.Store.Answers.Of(ctx, r.ID)
	if err != nil {
		return err
	}
	outputs, err := t.Store.Outputs.Of(ctx, r.ID)
	if err != nil {
		return err
	}
	one := func(span spanID, name, provider, status string, at time.Time) {
		failed := ""
		if status == store.AnswerFailed {
			failed = status
		}
		to.add(parent, span, name, kindProducer, at, at, failed,
			text("triphammer.provider", provider), text("triphammer.status", status))
	}
	for _, a := range answers {
		one(spanOf("answer", r.ID.String(), a.Kind), "answer "+a.Kind, a.Provider, a.Status, a.UpdatedAt)
	}
	for _, o := range outputs {
		one(spanOf("output", r.ID.String(), fmt.Sprint(o.Seq)), "output "+o.Kind, o.Provider, o.Status, o.UpdatedAt)
	}
	return nil
}

// clip cuts a name that an agent says.
func clip(name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return name
}
