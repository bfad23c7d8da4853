package answer

import (
	"encoding/json"

	"triphammer/factory/native"
	"triphammer/server/store"
)

// For makes the answers of a run that an event starts (SPEC 22.1). kinds are what its automation
// reports, and brief says that it reports the outcome and the link alone. An answer that
// cannot be given says why. lacks says why the sender's API can be told nothing; empty: it can. test
// tells that the delivery is a test: what it is about may be a stranger's, so nothing is told.
func For(kinds []string, brief bool, webhookUID, lacks string, test bool, e *native.Event, d native.Delivery) (all []store.NewAnswer) {
	s := ByProvider(e.Sender.Provider)
	for _, kind := range kinds {
		a := store.NewAnswer{Kind: kind, WebhookUID: webhookUID, Provider: e.Sender.Provider, Brief: brief, Status: store.AnswerNone}
		if s == nil || kind == store.AnswerCheck && s.Check == nil {
			a.Detail = e.Sender.Title + " takes no " + kind
		} else if find(&a, s, e, d); lacks != "" {
			withhold(&a, lacks)
		}
		if test {
			withhold(&a, "a test is not answered")
		}
		all = append(all, a)
	}
	return all
}

// withhold makes an answer that is not told. Its place stays, for people.
func withhold(a *store.NewAnswer, why string) {
	a.Status, a.Next, a.Detail = store.AnswerNone, "", why
}

// find finds the place of an answer, or says why there is none. a is made pending if there is one.
func find(a *store.NewAnswer, s *Sender, e *native.Event, d native.Delivery) {
	p, err := s.Place(e, d)
	about := p.Thread
	if a.Kind == store.AnswerCheck {
		about = p.Commit
		if about == "" && p.Kind == pull {
			about = "head of " + p.Thread
		}
	}
	switch {
	case err != nil:
		a.Detail = err.Error()
		return
	case about == "" && a.Kind == store.AnswerCheck:
		a.Detail = e.Name + " is not about a commit"
		return
	case about == "":
		a.Detail = e.Name + " has no thread to answer in"
		return
	}
	place, _ := json.Marshal(p) // texts always encode
	a.Place, a.PlaceKey, a.Status = string(place), store.PlaceKey(a.WebhookUID, a.Kind, p.Container, p.Kind, about), store.AnswerPending
	switch {
	case a.Kind == store.AnswerThread && s.Sign != nil && p.Item != "":
		a.Next = store.AnswerSign
	case a.Kind == store.AnswerThread && s.Edit == nil:
		a.Next = store.AnswerEnd
	default:
		a.Next = store.AnswerStart
	}
}

// Outputs says where what the agent of a run asks for is done, by the event that starts the run
// (SPEC 23.1). lacks is as for For. starters are those who may answer questions of the agent; none:
// whoever can write there.
func Outputs(webhookUID, lacks string, e *native.Event, d native.Delivery, starters []string) *store.OutputPlace {
	o := &store.OutputPlace{WebhookUID: webhookUID, Provider: e.Sender.Provider}
	s := ByProvider(o.Provider)
	switch {
	case s == nil:
		o.Detail = e.Sender.Title + " takes no requests"
	case lacks != "":
		o.Detail = lacks
	default:
		p, err := s.Place(e, d)
		if err != nil {
			o.Detail = err.Error()
			break
		}
		p.Starters = starters
		place, _ := json.Marshal(p) // texts always encode
		o.Place = string(place)
	}
	return o
}

// pull is the Place.Kind of a pull or merge request. There, the runs of an automation have one text,
// which is edited.
const pull = "pull"
