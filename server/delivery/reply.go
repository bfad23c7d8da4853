package delivery

import (
	"slices"

	"triphammer/applier"
	"triphammer/factory/native"
	"triphammer/server/answer"
	"triphammer/server/store"
)

// threadOf is the place of the thread that a run is answered in; empty: it is not answered there.
func threadOf(answers []store.NewAnswer) string {
	for _, a := range answers {
		if a.Kind == store.AnswerThread && a.Status == store.AnswerPending {
			return a.PlaceKey
		}
	}
	return ""
}

// answerers leaves out the runs of what is nothing but a reply, if a trigger starts a run that answers
// in the thread (SPEC 21.6). Who has asked a question gets the answer all the same.
func answerers(runs []store.NewRun) []store.NewRun {
	only := func(r store.NewRun) bool { return r.OnlyReply && !r.ToQuestion }
	if !slices.ContainsFunc(runs, only) || !slices.ContainsFunc(runs, func(r store.NewRun) bool { return !r.OnlyReply && threadOf(r.Answers) != "" }) {
		return runs
	}
	for i := range runs {
		runs[i].ToQuestion = runs[i].ToQuestion || runs[i].OnlyReply && runs[i].Asks
	}
	return slices.DeleteFunc(runs, only)
}

// unnamed makes a delivery do what no trigger names: stop what is done in its thread (SPEC 21.6), and
// tell a sender that waits for an answer that nothing is started (SPEC 22.2). alone tells that no
// automation wants the delivery.
func unnamed(hook *applier.Webhook, item *store.NewDelivery, alone bool) {
	sender := hook.Def.Sender()
	if sender == nil || item.TestBy != "" || item.ReplayOf != 0 || item.AnswerOf != 0 {
		return
	}
	stops := hook.Def.Replies && sender.Stop != nil
	tells := slices.Contains(hook.Def.Report.Kinds, store.AnswerThread)
	awaited := func(e *native.Event) bool { return e.Awaited }
	if alone = alone && tells && slices.ContainsFunc(sender.Events, awaited); !stops && !alone {
		return // the payload need not be read again
	}
	sent := native.Delivery{Header: item.Headers, Body: item.Payload, Accounts: hook.Def.Accounts}
	p := sender.Read(sent)
	kind, event := store.AnswerIdle, sender.Stop
	if stops = stops && p.Is(event); !stops {
		i := slices.IndexFunc(sender.Events, func(e *native.Event) bool { return awaited(e) && p.Is(e) })
		if i < 0 || !alone {
			return
		}
		kind, event = store.AnswerUnmatched, sender.Events[i]
	}
	told := answer.For([]string{store.AnswerThread}, false, hook.UID, hook.NoCredential(), false, event, sent)
	place := threadOf(told)
	if place == "" {
		return
	}
	if stops {
		item.Stop, item.StopReason = place, "stopped at "+sender.Title
	}
	if tells {
		told[0].Kind, told[0].Next = kind, store.AnswerEnd
		item.Told = told
	}
}
