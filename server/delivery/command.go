package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"triphammer/applier"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/server/answer"
	"triphammer/server/store"
)

// commanded reads a reply, or a click on a button, that decides what waits for a person in its thread (SPEC 26.2);
// nil: the delivery is neither. open are the questions about the person that the sender's API has to answer before.
func (s *Service) commanded(ctx context.Context, hook *applier.Webhook, d *store.Delivery, sent match.Delivery) (reply *store.Reply, open []native.Question) {
	sender := hook.Def.Sender()
	if sender == nil || !bytes.Contains(sent.Body, []byte("triphammer approve ")) && !bytes.Contains(sent.Body, []byte("triphammer decline ")) {
		return nil, nil
	}
	deciding := slices.DeleteFunc(slices.Clone(hook.Automations), func(a *applier.Automation) bool { return !s.mayWait(a) })
	from := native.Delivery{Header: sent.Headers, Body: sent.Body, Accounts: hook.Def.Accounts, Answers: sent.Answers}
	c, who, is := sender.Commanded(from)
	event := sender.Spoken(sender.Read(from))
	clicked := is && event == sender.Click
	if !clicked && (!is || len(deciding) == 0 || s.answerOf(ctx, hook, sent.Body) != 0) {
		return nil, nil
	}
	told := answer.For([]string{store.AnswerThread}, false, hook.UID, hook.NoCredential(), d.TestBy != "", event, from)
	reply = &store.Reply{Thread: threadOf(told), Code: c.Code, Approve: c.Approve, Reason: c.Reason, Person: who.String()}
	if clicked {
		var p answer.Place
		_ = json.Unmarshal([]byte(told[0].Place), &p) // without a place, there is no thread
		if reply.Message, reply.Team = p.Item, p.Team; p.Item == "" || d.SecretGeneration != 0 {
			return reply, nil // it came in a request
		}
	}
	if reply.Thread == "" || d.ReplayOf != 0 { // a test and a replay decide nothing
		return reply, nil
	}
	for _, a := range deciding {
		list := a.Def.Approval.By(sender)
		if len(list) == 0 {
			continue
		}
		may, asks := sender.Admits(native.ParseStarters(list), from)
		if may {
			reply.May = append(reply.May, a.Def.Name)
		}
		for _, q := range asks {
			if !slices.Contains(open, q) {
				open = append(open, q)
			}
		}
	}
	return reply, open
}

// mayWait tells whether something of an automation can wait for a person.
func (s *Service) mayWait(a *applier.Automation) bool {
	waits := a.Def.Approval
	return waits.Start || waits.Outsiders || waits.Outputs || s.cfg.ApproveOutputs && len(a.Def.Outputs) > 0
}
