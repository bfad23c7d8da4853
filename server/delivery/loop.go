package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"triphammer/server/run"
	"triphammer/server/store"
)

// loopTime is how long after its end a run counts as the cause of a push with its commit. Later
// the cause is somebody else, such as a person who merged the commit.
const loopTime = 10 * time.Minute

// maxLoopRuns bounds how many runs one payload makes the guard look for.
const maxLoopRuns = 20

var runID = regexp.MustCompile(`run_[0-9a-z]{13}`)

// committers are the runs that made commits of a push. It finds them by the committer or author
// with run.CommitterDomain, or by a line Triphammer-Run in the message. It parses the payload
// only if the payload may have these.
func committers(body []byte) (runs []store.RunID) {
	if !bytes.Contains(body, []byte(run.CommitterDomain)) && !bytes.Contains(body, []byte("Triphammer-Run: run_")) {
		return nil
	}
	type commit struct {
		Message   string
		Author    struct{ Email string }
		Committer struct{ Email string }
	}
	var push struct {
		Commits    []commit
		HeadCommit commit `json:"head_commit"`
	}
	if json.Unmarshal(body, &push) != nil {
		return nil // the payload is no push
	}
	seen := make(map[string]bool)
	note := func(text, mark string) {
		if !strings.Contains(text, mark) {
			return
		}
		for _, id := range runID.FindAllString(text, maxLoopRuns) {
			if parsed, err := store.ParseID[store.Run](id); err == nil && !seen[id] && len(runs) < maxLoopRuns {
				seen[id] = true
				runs = append(runs, parsed)
			}
		}
	}
	for _, c := range append(push.Commits, push.HeadCommit) {
		note(c.Author.Email, run.CommitterDomain)
		note(c.Committer.Email, run.CommitterDomain)
		note(c.Message, "Triphammer-Run: ")
	}
	return runs
}

// loops finds which of the runs of a delivery would be started by the work of an earlier
// run of the same automation, and marks them.
func (s *Service) loops(ctx context.Context, body []byte, runs []store.NewRun) {
	for _, id := range committers(body) {
		r, err := s.cfg.Store.Runs.Get(ctx, id)
		if err != nil || r.Automation == "" || !r.FinishedAt.IsZero() && s.cfg.Now().Sub(r.FinishedAt) > loopTime {
			continue
		}
		for i := range runs {
			if runs[i].Automation == r.Automation && runs[i].Factory == r.Factory {
				runs[i].LoopOf = id
			}
		}
	}
}
