package api

// LiveChange is the data of an event that tells an open page of a change: how many came since
// the page was made. There may be more.
type LiveChange struct {
	New int64 `json:"new"`
}

// LiveRun is the data of an event that tells an open page of a change of its run.
type LiveRun struct {
	State  string `json:"state"`
	Events int64  `json:"events"` // number of the newest
}
