package delivery

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"triphammer/applier"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/server/store"
)

// About is what a list says of an accepted delivery beside its outcome.
type About struct {
	Event   string         // what happened, as the sender names it; empty: nothing says so
	Person  string         // who did it, as the sender names people; empty: nothing says so
	Title   string         // what people call the thing that it is about; empty: nothing says so
	Matches []match.Result // why nothing matched it; nil if something did, or if nobody knows any more
}

// The limits of About, so that a page of a list costs little whatever was sent.
const (
	aboutBytes = 8 << 20 // of the payloads that are read
	aboutLoads = 2       // older definitions that are loaded
	aboutMost  = 500     // automations of a factory whose older definitions are loaded
)

// About says what accepted deliveries of a list are about, and why nothing matched. It leaves out
// payloads that are large, and reasons that only definitions know which are not live any more, if
// many of them would have to be loaded; Show has both.
func (s *Service) About(ctx context.Context, all []*store.Delivery) (map[store.DeliveryID]About, error) {
	room := int64(aboutBytes)
	some := slices.DeleteFunc(slices.Clone(all), func(d *store.Delivery) bool {
		if d.Outcome != store.Accepted || d.Size > room {
			return true
		}
		room -= d.Size
		return false
	})
	bodies, err := s.cfg.Store.Deliveries.Payloads(ctx, some)
	if err != nil {
		return nil, err
	}
	about, loaded := make(map[store.DeliveryID]About, len(some)), make(map[store.ApplyID]*applier.Webhook)
	for _, d := range some {
		body, kept := bodies[d.ID]
		if !kept {
			continue
		}
		sent := match.Delivery{Headers: d.Headers, Body: body}
		live, _ := s.cfg.Live.Webhook(d.WebhookUID)
		a := About{}
		a.Event, a.Person, a.Title = happened(live, sent)
		if wantedBy(d) == 0 {
			if hook := s.decidingFew(ctx, d, live, loaded); hook != nil {
				a.Matches = hook.Index.Explain(sent)
			}
		}
		about[d.ID] = a
	}
	return about, nil
}

// Has tells whether a text is a part of the names of what happened, in any case.
func (a About) Has(event string) bool {
	return strings.Contains(strings.ToLower(a.Event), strings.ToLower(event))
}

// wantedBy counts what a delivery started, and what wanted it but started nothing.
func wantedBy(d *store.Delivery) int {
	n := max(d.Started, 0) + len(d.Paused) + len(d.Repeats) + len(d.Limited) + len(d.Skips) + len(d.Stopped)
	if d.AnswerOf != 0 {
		n++
	}
	return n
}

// decidingFew is deciding that loads few definitions that are not live, and each once.
func (s *Service) decidingFew(ctx context.Context, d *store.Delivery, live *applier.Webhook, loaded map[store.ApplyID]*applier.Webhook) *applier.Webhook {
	if live != nil && live.Revision.ApplyID == d.ApplyID.String() {
		return live
	}
	hook, known := loaded[d.ApplyID]
	if !known && len(loaded) < aboutLoads && live != nil && len(live.Revision.Definition.Automations) <= aboutMost {
		hook, _ = s.deciding(ctx, d)
		loaded[d.ApplyID] = hook
	}
	if hook == nil || hook.UID == d.WebhookUID {
		return hook
	}
	for _, w := range hook.Revision.Webhooks {
		if w.UID == d.WebhookUID {
			return w
		}
	}
	return nil
}

// happened is what happened, who did it, and what people call the thing that it is about: by the events of the webhook's sender, or else as far as
// the headers and the payload name an event themselves. Hook may be nil.
func happened(hook *applier.Webhook, sent match.Delivery) (event, person, title string) {
	if hook != nil {
		if sender := hook.Def.Sender(); sender != nil {
			whole := native.Delivery{Header: sent.Headers, Body: sent.Body, Accounts: hook.Def.Accounts}
			p := sender.Read(whole)
			title = sender.TitleOf(whole)
			var names []string
			for _, e := range p.Events() {
				names = append(names, e.Name)
				if person == "" {
					person = e.PersonOf(p).Login
				}
			}
			if len(names) > 0 {
				return strings.Join(names, ", "), person, title
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sent.Headers)) {
		if strings.HasSuffix(name, "-Event") || strings.HasSuffix(name, "-Event-Type") || strings.HasSuffix(name, "-Event-Key") || strings.HasSuffix(name, "-Hook-Resource") {
			event = sent.Headers[name]
			break
		}
	}
	var body struct{ Action, Type, Event string }
	_ = json.Unmarshal(sent.Body, &body) // a payload of another shape names no event
	for _, word := range []string{body.Action, body.Event, body.Type} {
		if word != "" && len(word) < 60 {
			return strings.TrimSpace(event + " " + word), "", title
		}
	}
	return event, "", title
}
