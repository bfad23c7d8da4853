package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"time"

	"triphammer/server/store"
	"triphammer/server/worker/harness"
)

// FromConversation makes the run that a request asks for in the conversation of another
// run, with the agent, environment, harness and session of that run. keep is how long
// sessions are kept. The store decides whether the conversation can go on when it stores
// the run.
func FromConversation(ctx context.Context, st *store.Store, of *store.Run, req Request, keep time.Duration, now time.Time) (store.NewRun, error) {
	if err := req.check(); err != nil {
		return store.NewRun{}, err
	}
	for _, f := range []struct {
		field string
		asked bool
	}{
		{"config", len(req.Config) > 0 && string(req.Config) != "{}"}, {"agent_identity_uid", req.Agent != ""}, {"parent_run_id", req.Parent != 0},
	} {
		if f.asked {
			return store.NewRun{}, refuse(f.field, "is not taken with a conversation, which has its own")
		}
	}
	if of.State == store.Blocked {
		return store.NewRun{}, &RefusedError{Conflict: true, Detail: fmt.Sprintf("run %s waits for a person to approve it: it has no conversation yet", of.ID)}
	}
	spec, err := SpecOf(ctx, st, of)
	if err != nil {
		return store.NewRun{}, err
	}
	if err := spec.continues(); err != nil {
		return store.NewRun{}, err
	}
	// The session has the prompts of the earlier runs.
	spec.Automation, spec.AgentPrompt, spec.Prompt, spec.Attachments, spec.Mode, spec.Asked = "", "", req.Prompt, req.Attachments, req.Mode, nil
	if err := cmp.Or(req.suits(&spec), spec.ask(ctx, st, req.Skills)); err != nil {
		return store.NewRun{}, err
	}
	metadata, err := metadataOf(ctx, st, of, req.Metadata)
	if err != nil {
		return store.NewRun{}, err
	}
	encoded, err := spec.Encode()
	if err != nil {
		return store.NewRun{}, err
	}
	title := req.title()
	return store.NewRun{
		Factory: of.Factory, Source: store.SourceAPI, Title: title, CreatorKind: req.Caller.CreatorKind, CreatorName: req.Caller.CreatorName,
		Commit: of.Commit, SpecHash: sha256.Sum256(encoded), Spec: encoded, Metadata: metadata, Search: []string{title, req.Prompt},
		Conversation: of.ConversationID, EndedAfter: now.Add(-keep), Priority: req.priority(), Subject: of.Subject,
	}, nil
}

// FromRun makes a run that does again what an ended run did, with the same spec, delivery and
// payload. With resume, or if the ended run was a follow-up, the new run goes on in the
// conversation of the ended run.
func FromRun(ctx context.Context, st *store.Store, of *store.Run, by Caller, resume bool, keep time.Duration, now time.Time) (store.NewRun, error) {
	if !of.State.Terminal() {
		return store.NewRun{}, &RefusedError{Conflict: true, Detail: fmt.Sprintf("run %s has not ended: it is %s. Wait for its end (`triphammer runs watch %s`), or end it first (`triphammer runs cancel %s`)", of.ID, of.State, of.ID, of.ID)}
	}
	spec, err := SpecOf(ctx, st, of)
	if err != nil {
		return store.NewRun{}, err
	}
	if of.DeliveryID != 0 {
		if _, err := st.Deliveries.Payload(ctx, of.DeliveryID); errors.Is(err, store.ErrNotFound) {
			return store.NewRun{}, &RefusedError{Conflict: true, Detail: fmt.Sprintf("the payload of delivery %s, on which run %s acted, is not kept any more: have the sender send it again", of.DeliveryID, of.ID)}
		} else if err != nil {
			return store.NewRun{}, err
		}
	}
	r := store.NewRun{
		Factory: of.Factory, Automation: of.Automation, Source: of.Source, Title: of.Title, CreatorKind: by.CreatorKind, CreatorName: by.CreatorName,
		Webhook: of.Webhook, Commit: of.Commit, SpecHash: of.SpecHash, ParentID: of.ParentID, Schedule: of.Schedule,
		DeliveryID: of.DeliveryID, RetryOf: of.ID, Priority: of.Priority, Subject: of.Subject, Person: of.Person,
	}
	if of.Automation == "" {
		if r.Metadata, err = metadataOf(ctx, st, of, nil); err != nil {
			return store.NewRun{}, err
		}
		r.Search = []string{of.Title, spec.Prompt}
	}
	if resume || of.ConversationID != of.ID {
		if !spec.Sessions() {
			return store.NewRun{}, &RefusedError{Unsupported: true, Detail: spec.agent() + " keeps no session that a run could go on with: leave resume out (--resume), and the run begins anew"}
		}
		r.Conversation, r.EndedAfter = of.ConversationID, now.Add(-keep)
	}
	return r, nil
}

// Sessions tells whether the agent keeps its conversations, so that another run can go on
// with one. The environment's own command keeps no conversations. Every harness that can be
// the server's default does.
func (s *Spec) Sessions() bool {
	h := harness.Named(s.Harness.Type)
	return !s.Commanded() && (h == nil && s.byDefault() || h != nil && h.Sessions)
}

// byDefault tells whether the run uses the server's default harness.
func (s *Spec) byDefault() bool { return s.Harness.Type == "" || s.Harness.Type == "oz" }

// continues says why no run can go on with the session of another run of this spec.
func (s *Spec) continues() error {
	if s.Sessions() {
		return nil
	}
	return &RefusedError{Unsupported: true, Detail: s.agent() + " keeps no session that a run could go on with: start a new run, with parent_run_id to link the two"}
}

// SpecOf reads the spec of a run.
func SpecOf(ctx context.Context, st *store.Store, r *store.Run) (Spec, error) {
	data, err := st.Specs.Get(ctx, r.SpecHash)
	if err != nil {
		return Spec{}, fmt.Errorf("spec of %s: %w", r.ID, err)
	}
	return DecodeSpec(data)
}

// metadataOf is the metadata of a run together with more, which wins.
func metadataOf(ctx context.Context, st *store.Store, of *store.Run, more map[string]string) (map[string]string, error) {
	all, err := st.Runs.Metadata(ctx, of.ID)
	if err != nil {
		return nil, err
	}
	merged := make(map[string]string)
	maps.Copy(merged, all[of.ID])
	maps.Copy(merged, more)
	if len(merged) > maxMetadata {
		return nil, refuse("metadata", "has at most %d keys, with those of the run before", maxMetadata)
	}
	return merged, nil
}
