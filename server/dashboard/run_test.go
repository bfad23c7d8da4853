package dashboard

import (
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
)

// evilRun is a run in which others have written everything that they can.
func evilRun(state string) api.Run {
	now, size := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), int64(7)
	ref := []api.RunRef{{RunID: evil, Title: evil, State: evil}, {RunID: "run_1", Title: evil}}
	return api.Run{
		RunID: evil, Title: evil, State: state, StatusMessage: evil, Source: evil, Creator: api.Profile{DisplayName: evil}, EnvironmentID: evil, Factory: evil,
		Automation: evil, Agent: evil, Webhook: evil, DeliveryID: evil, Schedule: &api.RunSchedule{Name: evil, Cron: evil}, ParentRunID: evil, RetryOf: evil,
		Metadata: map[string]string{evil: evil}, Commit: evil, Path: evil, CreatedAt: now, StartedAt: &now, FinishedAt: &now, Usage: &api.Usage{InferenceCostUSD: 1},
		AgentConfig: api.AgentConfig{Harness: &api.HarnessConfig{Type: evil, ModelID: evil}}, Workspace: &api.Workspace{Path: evil},
		Belt: []api.Stage{{Stage: evil, Outcome: "stopped", Detail: "since 2026-11-21 12:00:00 UTC: " + evil}},
		Artifacts: []api.Artifact{
			{Type: evil, Data: api.ArtifactData{URL: "javascript:alert(1)", Title: evil}},
			{Type: "PULL_REQUEST", Data: api.ArtifactData{URL: "data:text/html," + evil}},
			{Type: evil, Data: api.ArtifactData{URL: "//evil.example/x"}},
			{Data: api.ArtifactData{UID: evil, FileName: evil, FilePath: evil, Size: &size}},
		},
		Detail: &api.RunDetail{
			Sent: evil, Takes: []string{"cancel", "interrupt", "retry", "resume", "followup"}, Events: map[string]int64{evil: 1}, Conversation: ref, RetriedBy: ref,
			Attachments: []api.AttachmentRef{{Name: evil}}, Repositories: []string{"javascript:" + evil}, Network: "listed", Hosts: []string{evil}, Budget: api.Budget{USD: 1},
		},
	}
}

func runWith(page Page, r api.Run, events []api.Event) RunPage {
	page.Person.May = func(string) bool { return true }
	return RunPage{
		Page: page, Run: r, Now: time.Now(), Delivery: &api.DeliveryDetail{Belt: []api.Stage{{Stage: evil, Outcome: "passed", Detail: evil}, {Stage: "run"}}},
		Line: lineOf(&r, events, time.Now()), Place: event.Status{Worker: evil, Isolation: evil, ModelKey: evil, Head: evil}, Files: []entry{{Code: evil, Label: evil, Sub: evil, Diff: []diffLine{{"ins", evil}}}},
		Entries: reading{}.entries(events), View: evil, First: 1, Last: 2, Later: true, Message: evil, Problem: evil,
	}
}
