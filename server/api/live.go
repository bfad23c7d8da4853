package api

// LiveChange is the data of an event that tells an open page of a change. It counts new things
// since the page was made; there may be more of them.
type LiveChange struct {
	New int64 `json:"new"`
}

// LiveRun is the data of an event that tells an open page of a run that the run has changed.
type LiveRun struct {
	State  string `json:"state"`
	Events int64  `json:"events"` // number of the newest event
}
