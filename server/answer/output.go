package answer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"triphammer/schema/output"
	"triphammer/server/lookup"
	"triphammer/server/store"
)

// Wanted is something that the agent of a run has asked for, as a sender gets it. Its texts are
// harmless in the sender's markup (SPEC 23.4).
type Wanted struct {
	output.Request // Body is rendered, with the marker at its end; so are the bodies of Comments
	Bounds         output.Bounds
	Marker         string
	// Again tells that an earlier attempt may have done it: what cannot be done twice is looked for.
	Again bool
}

// title is the title that a thing gets. Nothing in it mentions somebody or closes an issue, not even as
// the message of a commit: that is what forges make of the titles of pull requests.
func (w *Wanted) title() string {
	return w.Bounds.TitlePrefix + output.Unpointed(oneLine(w.Title, maxName))
}

// base is the branch into which a pull request goes. ask finds the default branch.
func (w *Wanted) base(ask func() (string, error)) (string, error) {
	if base := cmp.Or(w.Bounds.Base, w.Base); base != "" {
		return base, nil
	}
	return ask()
}

type defaultBranch struct {
	Name string `json:"default_branch"`
}

// Perform does what an agent has asked for, once. It returns what was made, if that has an address.
type Perform func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error)

// performs finds how a sender does things of a kind; nil: it does not. A comment is a text like an answer.
func (s *Sender) performs(kind string) Perform {
	if do := s.Outputs[kind]; do != nil {
		return do
	}
	if kind == "comment" && output.ByName(kind).Needs[s.Provider] != "" {
		return s.comment
	}
	return nil
}

func (s *Sender) comment(ctx context.Context, c *lookup.Client, api lookup.API, p Place, w *Wanted) (Posted, error) {
	if w.Again {
		if s.Find == nil {
			return Posted{}, errUnsure
		}
		if at, found, err := s.Find(ctx, c, api, p, w.Marker); err != nil || found {
			return at, err
		}
	}
	return s.Post(ctx, c, api, p, w.Body, w.Marker)
}

// wanted makes what a sender gets of an output.
func (w *Worker) wanted(ctx context.Context, s *Sender, o *store.Output) (*Wanted, error) {
	r, err := w.Store.Runs.Get(ctx, o.RunID)
	if err != nil {
		return nil, err
	}
	wanted := &Wanted{Again: o.Uncertain, Marker: w.Store.Outputs.Marker(o)}
	if wanted.Request, err = output.Parse([]byte(o.Request)); err == nil {
		err = json.Unmarshal([]byte(o.Bounds), &wanted.Bounds)
	}
	if err != nil {
		return nil, lookup.Fail("it cannot be read: "+err.Error(), true)
	}
	m := Message{State: Said, Run: r.ID.String(), Link: w.Link(r.ID), Text: wanted.Body, Marker: wanted.Marker}
	if wanted.Body != "" {
		wanted.Body = s.Text(m)
	}
	for i := range wanted.Comments { // the review itself names the run, and each of them is a delivery of its own
		wanted.Comments[i].Body = s.Text(Message{State: Said, Text: wanted.Comments[i].Body, Marker: wanted.Marker})
	}
	return wanted, nil
}

// perform makes one turn of an output.
func (w *Worker) perform(ctx context.Context, o store.Output) error {
	if o.Kind == output.PushKind {
		return w.push(ctx, o)
	}
	s := w.Sender(o.Provider)
	var p Place
	var wanted *Wanted
	err := json.Unmarshal([]byte(o.Place), &p)
	switch {
	case err != nil:
		err = lookup.Fail("its place cannot be read", true)
	case s == nil || s.performs(o.Kind) == nil:
		err = lookup.Fail("this server cannot do that at "+o.Provider, true)
	default:
		if wait := w.paces.take(s.Paces, o.WebhookUID, p.Container, false, w.Now()); wait > 0 {
			o.DueAt = w.Now().Add(wait)
			return w.Store.Outputs.Save(ctx, o)
		}
		if wanted, err = w.wanted(ctx, s, &o); err != nil && !errors.As(err, new(*lookup.Failure)) {
			return err
		}
	}
	if err == nil && o.Kind == output.Pull {
		if err = w.unpushed(ctx, &o, wanted.Head); err != nil && !errors.As(err, new(*lookup.Failure)) {
			return err
		}
	}
	if taken, lost := w.Store.Outputs.Begin(ctx, &o, w.Now().Add(lease)); lost != nil || !taken {
		return lost
	}
	var at Posted
	if err == nil {
		trying, cancel := context.WithTimeout(ctx, attemptTime)
		defer cancel()
		var api lookup.API
		if api, err = w.API(trying, o.WebhookUID); err == nil {
			at, err = s.performs(o.Kind)(trying, w.Client, api, p, wanted)
		}
	}
	if ctx.Err() != nil {
		return nil // what has become of the turn is found out later
	}
	return w.performed(ctx, s, &o, wanted, at, err)
}

// push makes one turn of a push.
func (w *Worker) push(ctx context.Context, o store.Output) error {
	if taken, lost := w.Store.Outputs.Begin(ctx, &o, w.Now().Add(pushTime+lease)); lost != nil || !taken {
		return lost
	}
	r, err := output.Parse([]byte(o.Request))
	if err != nil || r.Push == nil {
		err = lookup.Fail("it cannot be read", true)
	} else {
		pushing, cancel := context.WithTimeout(ctx, pushTime)
		defer cancel()
		err = w.Push(pushing, r.Push)
	}
	if ctx.Err() != nil {
		return nil // what has become of the turn is found out later
	}
	return w.performed(ctx, nil, &o, nil, Posted{}, err)
}

// unpushed refuses a pull request of a branch whose push was not approved, or not made.
func (w *Worker) unpushed(ctx context.Context, o *store.Output, head string) error {
	all, err := w.Store.Outputs.Of(ctx, o.RunID)
	if err != nil {
		return err
	}
	for _, before := range all {
		r, _ := output.Parse([]byte(before.Request))
		if r.Push != nil && r.Push.Ref == "refs/heads/"+head && before.Status != store.OutputDone {
			return lookup.Fail(fmt.Sprintf("its branch is not there: output %d, the push, is %s", before.Seq, before.Status), true)
		}
	}
	return nil
}

// performed records what became of a turn.
func (w *Worker) performed(ctx context.Context, s *Sender, o *store.Output, wanted *Wanted, at Posted, err error) error {
	w.settled(s, o, wanted, at, err)
	if lost := w.Store.Outputs.Save(ctx, *o); lost != nil {
		return lost
	}
	if o.Status == store.OutputDone {
		err = nil
	}
	w.observe(o.Provider, o.Kind, err, o.Status == store.OutputFailed)
	return nil
}

// settled decides what follows a turn.
func (w *Worker) settled(s *Sender, o *store.Output, wanted *Wanted, at Posted, err error) {
	now := w.Now()
	if err == nil {
		o.Status, o.Detail, o.DueAt, o.Uncertain = store.OutputDone, "", time.Time{}, false
		if at.ID != "" || at.Link != "" {
			o.Posted = packed(at)
		}
		return
	}
	w.rested(o.WebhookUID, err)
	f := failed(err)
	final := f != nil && (f.Final() || denied(f))
	// Whoever does it again looks for what an earlier attempt has made, unless it was looked for in vain.
	vain := errors.Is(err, errUnsure) || errors.Is(err, errLong)
	o.Uncertain = f != nil && f.Uncertain() || wanted != nil && wanted.Again && !vain
	o.Detail = err.Error()
	if k := output.ByName(o.Kind); s != nil && f != nil && denied(f) && k != nil {
		why, _, _ := strings.Cut(o.Detail, "; it needs ") // what answers need
		o.Detail = why + "; it needs " + k.Needs[s.Provider]
	}
	pause := pauses[min(int(o.Attempts), len(pauses))-1]
	if f != nil {
		pause = max(pause, f.After())
	}
	if o.Uncertain {
		pause = max(pause, settleTime)
	}
	o.DueAt = now.Add(pause)
	level := slog.LevelWarn
	if late := now.Sub(o.CreatedAt) > giveUp; late || final {
		if late && !final {
			o.Detail = fmt.Sprintf("given up after %v: %s", giveUp, o.Detail)
		}
		o.Status, o.DueAt, level = store.OutputFailed, time.Time{}, slog.LevelError
		if at.ID != "" { // it is there, and lacks something
			o.Status, o.Uncertain, o.Posted = store.OutputDone, false, packed(at)
		}
	}
	w.Logger.Log(context.Background(), level, "a sender did not do what an agent asked for", "run", o.RunID, "provider", o.Provider, "kind", o.Kind,
		"error", o.Detail, "attempts", o.Attempts, "status", o.Status)
}

// change makes a request that may be made twice.
func change(g *call, p Place, method, path string, body any) (Posted, error) {
	return Posted{Link: p.Link}, g.do(method, path, body, new(json.RawMessage))
}

// marked tells whether a text ends with a marker.
func marked(body, marker string) bool {
	return strings.HasSuffix(strings.TrimSpace(body), strings.TrimSpace(comment(Message{Marker: marker})))
}
