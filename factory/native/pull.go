package native

import "slices"

// PullRequest is what a delivery says of a pull request, or of a merge request (SPEC 27.1).
type PullRequest struct {
	URL     string // of its page
	Outcome string // PullOpen, PullMerged or PullClosed
	Commit  string // its head
}

// Values of PullRequest.Outcome.
const (
	PullOpen   = "open"
	PullMerged = "merged"
	PullClosed = "closed" // without a merge
)

// pull is a row of a sender: where in a delivery the state of a pull request is.
type pull struct {
	is           Condition // that the delivery is about a pull request
	page, commit Source
	state        Source
	outcomes     map[string]string // of each state
}

func (l *pull) eachSource(visit func(Source)) {
	for _, s := range []Source{l.is.Source, l.page, l.commit, l.state} {
		visit(s)
	}
}

// PullRequest is what a delivery says of a pull request; ok is false if it says nothing. The body must be
// valid JSON (jsonscan.Check).
func (s *Sender) PullRequest(d Delivery) (found PullRequest, ok bool) {
	if s.pull == nil {
		return found, false
	}
	p := s.read(d, s.headReader)
	if !s.pull.is.holds(p) {
		return found, false
	}
	found = PullRequest{URL: one(s.pull.page, p), Outcome: s.pull.outcomes[one(s.pull.state, p)], Commit: one(s.pull.commit, p)}
	return found, found.URL != "" && found.Outcome != ""
}

// githubPullState is merged, or else the state of the pull request: merged ones are closed, too.
var githubPullState = Source{
	Doc: "merged if pull_request.merged, else pull_request.state", places: placesOf("pull_request.merged", "pull_request.state"),
	read: func(p *Payload) []string {
		if slices.Contains(p.values["pull_request.merged"], "true") {
			return []string{PullMerged}
		}
		return p.values["pull_request.state"]
	},
}
