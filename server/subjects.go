package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// subjectCursor is the position where a page of subjects ended.
type subjectCursor struct {
	ID   int64  `json:"i,string"`
	Name string `json:"n"`
}

func (s *Server) listSubjects(ctx context.Context, c *call) (shown api.List[api.Subject], err error) {
	limit, err := c.limit()
	if err != nil {
		return shown, err
	}
	q := store.SubjectQuery{Factory: c.Query("factory"), Text: c.Query("text"), Limit: limit + 1}
	if len(q.Text) > maxText {
		return shown, refuse("text", "", "text has at most %d bytes", maxText)
	}
	if q.Since, _, err = c.timespan(); err != nil {
		return shown, err
	}
	if text := c.Query("cursor"); text != "" {
		var at subjectCursor
		data, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(data, &at) != nil || at.ID <= 0 {
			return shown, refuse("cursor", "", "cursor is not the next_cursor of a list of subjects")
		}
		q.After = store.SubjectCursor{ID: at.ID, Name: at.Name}
	}
	all, err := c.Subjects(ctx, q)
	shown = listPage(all, limit, func(f store.Subject) string {
		text, _ := json.Marshal(subjectCursor{f.Newest, f.Name}) // plain data always encodes
		return base64.RawURLEncoding.EncodeToString(text)
	}, showSubject)
	if err == nil && c.Query("about") == "true" {
		err = s.tellNewest(ctx, c, shown.Entries)
	}
	return shown, err
}

// tellNewest adds to subjects their newest deliveries, with what they are about.
func (s *Server) tellNewest(ctx context.Context, c *call, shown []api.Subject) error {
	var all []*store.Delivery
	var of []int // the subject of each
	for i, one := range shown {
		newest, err := c.Deliveries(ctx, store.DeliveryQuery{Factory: one.Factory, Subject: one.Subject, Limit: 1})
		if err != nil {
			return err
		}
		for _, d := range newest {
			all, of = append(all, d), append(of, i)
		}
	}
	told := terms.Each(all, showDelivery)
	for i := range told {
		shown[of[i]].Newest = &told[i]
	}
	return s.tellAbout(ctx, c, all, told)
}

func showSubject(f store.Subject) api.Subject {
	return api.Subject{
		Subject: f.Name, Factory: f.Factory, NewestAt: f.At, Deliveries: f.Deliveries, Runs: f.Runs, Active: f.Active, Tokens: f.Tokens, CostUSD: f.CostUSD,
	}
}

// mostOfStory is how many entries of each kind a story has.
const mostOfStory = 100

// subjectStory shows everything about one subject (SPEC 21.2).
func (s *Server) subjectStory(ctx context.Context, c *call) (shown api.SubjectStory, err error) {
	name, factory := c.Query("subject"), c.Query("factory")
	if name == "" {
		return shown, refuse("subject", "is needed", "subject is needed, such as github:acme/app#12, with # written as %%23")
	}
	in, err := c.Subjects(ctx, store.SubjectQuery{Factory: factory, Name: name})
	if err != nil {
		return shown, err
	}
	if len(in) == 0 {
		return shown, api.Refuse(api.NotFound, "nothing that is kept is about the subject "+name+"; triphammer subjects list names those that are kept")
	}
	deliveries, err := c.Deliveries(ctx, store.DeliveryQuery{Factory: factory, Subject: name, Limit: mostOfStory})
	if err != nil {
		return shown, err
	}
	q := store.RunQuery{Subject: name, Limit: mostOfStory}
	if factory != "" {
		q.Factories = []string{factory}
	}
	runs, err := c.Runs(ctx, q)
	if err != nil {
		return shown, err
	}
	pulls, err := c.SubjectPullRequests(ctx, factory, name, mostOfStory)
	if err != nil {
		return shown, err
	}
	told, err := s.showRuns(ctx, runs)
	if err != nil {
		return shown, err
	}
	for i, r := range runs {
		if !r.State.Terminal() {
			belt, err := r.Belt(ctx)
			if err != nil {
				return shown, err
			}
			told[i].Belt = terms.Each(belt, showStage)
		}
	}
	answers, err := access.Answers(ctx, runs...)
	if err != nil {
		return shown, err
	}
	outputs, err := access.Outputs(ctx, runs...)
	if err != nil {
		return shown, err
	}
	came := terms.Each(deliveries, showDelivery)
	if c.Query("about") == "true" {
		if err := errors.Join(s.tellAbout(ctx, c, deliveries, came), tellOfRuns(ctx, c, runs, told)); err != nil {
			return shown, err
		}
	}
	return api.SubjectStory{
		Subject: name, Factories: terms.Each(in, showSubject), Story: chapters(came, told, pulls, terms.Each(answers, showAnswer), terms.Each(outputs, showOutput)),
		Truncated: len(deliveries) == mostOfStory || len(runs) == mostOfStory || len(pulls) == mostOfStory,
	}, nil
}

// chapters are all that is about a subject, the oldest first: of one time, a delivery before its runs. The lists have
// the newest first, but for the answers and the outputs.
func chapters(deliveries []api.Delivery, runs []api.Run, pulls []*store.Artifact, answers []api.Answer, outputs []api.Output) []api.Chapter {
	slices.Reverse(deliveries)
	slices.Reverse(runs)
	slices.Reverse(pulls)
	all := make([]api.Chapter, 0, len(deliveries)+len(runs)+len(pulls)+len(answers)+len(outputs))
	for i, d := range deliveries {
		all = append(all, api.Chapter{At: d.ReceivedAt, Delivery: &deliveries[i]})
	}
	for i, r := range runs {
		all = append(all, api.Chapter{At: r.CreatedAt, Run: &runs[i]})
	}
	for _, p := range pulls {
		all = append(all, api.Chapter{At: p.CreatedAt, PullRequest: &api.PullRequest{
			Outcome: p.Outcome, ID: p.ID.String(), URL: p.URL, Name: p.Name, RunID: p.RunID.String(), CreatedAt: p.CreatedAt,
		}})
	}
	for i, a := range answers {
		all = append(all, api.Chapter{At: a.UpdatedAt, Answer: &answers[i]})
	}
	for i, o := range outputs {
		all = append(all, api.Chapter{At: o.At, Output: &outputs[i]})
	}
	slices.SortStableFunc(all, func(a, b api.Chapter) int { return a.At.Compare(b.At) })
	return all
}
