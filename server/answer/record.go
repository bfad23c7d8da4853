package answer

import (
	"encoding/json"
	"strings"

	"triphammer/factory/native"
	"triphammer/server/store"
)

// For makes the answers of a run that an event starts (SPEC 22.1). kinds are what its automation
// reports, and brief says that it reports the outcome and the link alone. An answer that
// cannot be given says why. credential tells that the webhook has a secret for the sender's API.
func For(kinds []string, brief bool, webhookUID string, credential bool, e *native.Event, d native.Delivery) (all []store.NewAnswer) {
	s := ByProvider(e.Sender.Provider)
	for _, kind := range kinds {
		a := store.NewAnswer{Kind: kind, WebhookUID: webhookUID, Provider: e.Sender.Provider, Brief: brief, Status: store.AnswerNone}
		switch {
		case s == nil || kind == store.AnswerCheck && s.Check == nil:
			a.Detail = e.Sender.Title + " takes no " + kind
		case !credential:
			a.Detail = "needs apiSecretName in the webhook file"
		default:
			find(&a, s, e, d)
		}
		all = append(all, a)
	}
	return all
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
	a.Place, a.PlaceKey, a.Status = string(place), strings.Join([]string{a.WebhookUID, a.Kind, p.Container, p.Kind, about}, "\x1f"), store.AnswerPending
	switch {
	case a.Kind == store.AnswerThread && s.Sign != nil && p.Item != "":
		a.Next = store.AnswerSign
	case a.Kind == store.AnswerThread && s.Edit == nil:
		a.Next = store.AnswerEnd
	default:
		a.Next = store.AnswerStart
	}
}

// pull is the Place.Kind of a pull or merge request. There, the runs of an automation have one text,
// which is edited.
const pull = "pull"
