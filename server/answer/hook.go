package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"triphammer/server/lookup"
	"triphammer/server/store"
)

// hook stands for an address of the key report. It takes signed messages, which Worker.tell sends.
var hook = &Sender{Provider: store.AnswerURL}

// Tell makes the answer of a run that is told to an address (SPEC 22.1). secretName is the managed secret
// that signs.
func Tell(webhookUID, address, secretName string) store.NewAnswer {
	place, _ := json.Marshal(Place{Provider: store.AnswerURL, Container: address, Item: secretName}) // texts always encode
	return store.NewAnswer{
		Kind: store.AnswerURL, WebhookUID: webhookUID, Provider: store.AnswerURL, Place: string(place), Status: store.AnswerPending,
		PlaceKey: webhookUID + "\x1f" + store.AnswerURL + "\x1f" + address, Next: store.AnswerStart, Brief: true,
	}
}

// tell sends an address how a run stands. The same message has the same id each time, so one with an
// unknown outcome is sent again.
func (w *Worker) tell(ctx context.Context, a *store.Answer, p Place) error {
	a.Uncertain = false
	r, err := w.Store.Runs.Get(ctx, a.RunID)
	if err != nil {
		return err
	}
	id := "msg_" + r.ID.String()
	if !r.State.Terminal() {
		id += "_started"
	}
	status, err := w.Tell(ctx, p.Container, p.Item, id, r)
	if err != nil && status == http.StatusGone {
		return lookup.Fail(fmt.Sprintf("answered %d: nobody wants to be told there any more", status), true)
	}
	return posted(a, Posted{ID: id, Link: p.Container}, err)
}
